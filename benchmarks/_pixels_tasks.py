# SPDX-License-Identifier: Apache-2.0
"""Which tasks the pixel benchmark uses and in which words each is asked for; simulates nothing."""

import functools
import importlib.resources
import json
from typing import Any

# The two faucet tasks show the same scene: which way to turn is in the words alone.
OLD_TASKS = ("button-press-topdown", "drawer-close", "faucet-close", "faucet-open", "handle-press", "window-open")
NEW_TASK = "drawer-open"

# Besides LeRobot's own description, which comes first. Demonstrations take turns between them.
PHRASES: dict[str, tuple[str, ...]] = {
    "button-press-topdown": ("push the button down", "press the red button from the top"),
    "drawer-close": ("close the drawer", "push the drawer in"),
    "faucet-close": ("turn the faucet clockwise", "close the faucet"),
    "faucet-open": ("turn the faucet counter-clockwise", "open the faucet"),
    "handle-press": ("push the handle down", "press down the handle"),
    "window-open": ("open the window", "slide the window open"),
    "drawer-open": ("open the drawer", "pull the drawer open"),
}

# Never in a demonstration, though every word of them is.
HELD_OUT: dict[str, tuple[str, ...]] = {
    "button-press-topdown": ("press the button down", "push down the red button from the top"),
    "drawer-close": ("push the drawer and close", "slide the drawer in"),
    "faucet-close": ("rotate a faucet clockwise", "turn clockwise and close the faucet"),
    "faucet-open": ("rotate a faucet counter-clockwise", "turn counter-clockwise and open the faucet"),
    "handle-press": ("press the handle", "push down a handle"),
    "window-open": ("push the window open", "slide and open a window"),
}


@functools.cache
def descriptions() -> dict[str, str]:
    """Return LeRobot's description of each Meta-World task, by the task's name without its version."""
    # Not by `lerobot.envs`, whose import takes many seconds.
    folder = importlib.resources.files("lerobot").joinpath("envs")
    text = folder.joinpath("metaworld_config.json").read_text(encoding="utf-8")
    config: dict[str, Any] = json.loads(text)
    return {name.removesuffix("-v3"): said for name, said in config["TASK_DESCRIPTIONS"].items()}


def phrases(task: str) -> tuple[str, ...]:
    """Return the ways in which demonstrations ask for a task; the first is LeRobot's, and evaluations use it.

    Lower case throughout: a word-level tokenizer would take `Open` and `open` for two words.
    """
    return (descriptions()[task].lower(), *PHRASES[task])


def vocabulary() -> tuple[str, ...]:
    """Return every word of every instruction, in a fixed order."""
    texts = [text for task in PHRASES for text in (*phrases(task), *HELD_OUT.get(task, ()))]
    return tuple(sorted({word for text in texts for word in text.split()}))
