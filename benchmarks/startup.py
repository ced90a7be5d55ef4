# SPDX-License-Identifier: Apache-2.0
"""How long the command takes to say what it can do, against LeRobot's own; trains nothing.

Processor time of the whole process, which other work on the machine does not stretch as it does the time on the wall;
the best of a few runs, in turn, after one that fills the disk cache.
"""

import resource
import subprocess
import sys

from _figures import parser, write_figures

COMMANDS = {
    "lerobot-craft --help": ["-m", "lerobot_craft.cli", "--help"],
    "lerobot-craft cache --help": ["-m", "lerobot_craft.cli", "cache", "--help"],
    "lerobot-craft train --help": ["-m", "lerobot_craft.cli", "train", "--help"],
    "lerobot-train --help": ["-m", "lerobot.scripts.lerobot_train", "--help"],
}


def seconds(words: list[str]) -> float:
    """Return the processor time of one run."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *words], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def main() -> None:
    """Print the table."""
    made = parser(__doc__)
    made.add_argument("--rounds", type=int, default=3)
    arguments = made.parse_args()
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for turn in range(-1, arguments.rounds):
        for name, words in COMMANDS.items():
            took = seconds(words)
            if turn >= 0:
                times[name].append(took)
    best = {name: min(found) for name, found in times.items()}
    theirs = best["lerobot-train --help"]
    print("| command | seconds | / `lerobot-train --help` |\n|---|---|---|")
    for name, took in best.items():
        print(f"| `{name}` | {took:.2f} | {took / theirs:.3f} |")
    write_figures(arguments.json, {name: {"seconds": took, "ratio": took / theirs} for name, took in best.items()})


if __name__ == "__main__":
    main()
