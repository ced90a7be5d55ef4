# SPDX-License-Identifier: Apache-2.0
"""LeRobot's complaint about its video decoder is one line, once; other warnings of the same logger pass."""

import logging

import pytest

from lerobot_craft.training._quiet import DECODER_LOGGER, OneLine


def test_one_line_once(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger(DECODER_LOGGER)
    known = logger.filters[:]
    logger.filters[:] = [OneLine()]
    try:
        with caplog.at_level(logging.WARNING):
            for _ in range(2):
                logger.warning(
                    "Traceback\n many lines\n'torchcodec' cannot be loaded (see the error above). Using pyav."
                )
            logger.warning("something else")
    finally:
        logger.filters[:] = known
    assert caplog.messages == ["'torchcodec' cannot be loaded. Using pyav.", "something else"]
