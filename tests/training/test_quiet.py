# SPDX-License-Identifier: Apache-2.0
"""LeRobot's complaint about its video decoder is one line, once; other warnings of the same logger pass."""

import logging

from lerobot_craft.training._quiet import DECODER_LOGGER, OneLine, quiet_decoder


def record(text: str) -> logging.LogRecord:
    return logging.LogRecord(DECODER_LOGGER, logging.WARNING, __file__, 1, text, None, None)


def test_one_line_once() -> None:
    shown = OneLine()
    first = record("Traceback\n many lines\n'torchcodec' cannot be loaded (see the error above). Using pyav.")
    assert shown.filter(first)
    assert first.getMessage() == "'torchcodec' cannot be loaded. Using pyav."
    assert not shown.filter(record("again 'torchcodec'"))
    other = record("something else")
    assert shown.filter(other)
    assert other.getMessage() == "something else"


def test_installed_once() -> None:
    quiet_decoder()
    quiet_decoder()
    filters = logging.getLogger(DECODER_LOGGER).filters
    assert len([known for known in filters if isinstance(known, OneLine)]) == 1
