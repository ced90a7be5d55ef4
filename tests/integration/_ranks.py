# SPDX-License-Identifier: Apache-2.0
"""Run by `accelerate launch` in each process: the command as it is, and then what this process ended up with.

Usage: _ranks.py FOLDER WORDS…
"""

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import torch


@contextlib.contextmanager
def keeping_results(folder: Path) -> Iterator[None]:
    """Write weights, the constraint's state and the history of every run in this context, by rank."""
    from lerobot_craft.training import _loop

    go = _loop.Loop.go

    def going(loop: _loop.Loop) -> bool:
        finished = go(loop)
        rank = loop.run.accelerator.process_index
        torch.save(loop.run.model.state_dict(), folder / f"weights-{rank}.pt")
        state = {"constraint": loop.constraint.state_dict(), "history": loop.log.history}
        (folder / f"state-{rank}.json").write_text(json.dumps(state))
        return finished

    _loop.Loop.go = going
    try:
        yield
    finally:
        _loop.Loop.go = go


def main() -> int:
    torch.set_num_threads(1)
    from lerobot_craft.cli import main as command

    with keeping_results(Path(sys.argv[1])):
        return command(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
