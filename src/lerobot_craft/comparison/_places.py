# SPDX-License-Identifier: Apache-2.0
"""Where the parts of one problem under one seed are; makes none of them."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Place:
    """The folder of one problem under one seed.

    Attributes:
        root: The folder.
    """

    root: Path

    @property
    def data(self) -> Path:
        """All datasets."""
        return self.root / "data"

    @property
    def teacher(self) -> Path:
        """The teacher's run."""
        return self.root / "teacher"

    @property
    def probe(self) -> Path:
        """States that no training has seen."""
        return self.data / "probe"

    def known(self, stage: int) -> Path:
        """Return the data of the tasks met before a stage."""
        return self.data / f"known_{stage}"

    def new(self, stage: int) -> Path:
        """Return the data of a stage's new task."""
        return self.data / f"new_{stage}"

    def prompted(self, stage: int) -> Path:
        """Return the new task's observations under the instructions of the tasks met before."""
        return self.data / f"prompted_{stage}"

    def anchors(self, label: str) -> Path:
        """Return the folder of an anchor cache."""
        return self.root / "anchors" / label

    def run(self, method: str, stage: int) -> Path:
        """Return the folder of one fine-tuning."""
        return self.root / "runs" / method / f"stage_{stage}"
