# SPDX-License-Identifier: Apache-2.0
"""One line, once, where LeRobot's choice of a video decoder prints eighty each time settings are made."""

import logging

DECODER_LOGGER = "lerobot.utils.import_utils"


class OneLine(logging.Filter):
    """Keeps the last line of a record that quotes torchcodec's attempts to load, and only the first such record."""

    def __init__(self) -> None:
        super().__init__()
        self._said = False

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the record is to be shown."""
        text = record.getMessage()
        if "torchcodec" not in text:
            return True
        record.msg, record.args = text.strip().splitlines()[-1].replace(" (see the error above)", ""), ()
        first, self._said = not self._said, True
        return first


def quiet_decoder() -> None:
    """Install the filter; a second call changes nothing."""
    logger = logging.getLogger(DECODER_LOGGER)
    if not any(isinstance(known, OneLine) for known in logger.filters):
        logger.addFilter(OneLine())
