# SPDX-License-Identifier: Apache-2.0
"""Command-line words into the spelling LeRobot's parser reads; imports neither torch nor LeRobot, parses no value."""

import re
from collections.abc import Sequence

# The user's documents follow LeRobot before 0.6, which renamed this flag.
RENAMED = {"eval_freq": "env_eval_freq"}

_BARE_PAIR = re.compile(r"^[A-Za-z_][\w.]*=")


def normalize(arguments: Sequence[str]) -> list[str]:
    """Return `arguments` with `key=value` given its dashes and renamed flags given their present name.

    A word right after a flag without `=` is that flag's value and is left alone.

    >>> normalize(["craft.enabled=true", "--eval_freq=0", "--eval_freq", "0", "--policy.path", "a=b"])
    ['--craft.enabled=true', '--env_eval_freq=0', '--env_eval_freq', '0', '--policy.path', 'a=b']
    """
    normalized: list[str] = []
    is_value = False
    for word in arguments:
        if not is_value and _BARE_PAIR.match(word):
            word = f"--{word}"
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            normalized.append(f"--{RENAMED.get(name, name)}{equals}{value}")
            is_value = not equals
        else:
            normalized.append(word)
            is_value = False
    return normalized


def given(arguments: Sequence[str], name: str) -> str | None:
    """Return the last value of flag `name` in normalized `arguments`, or None where it is not given.

    A flag without a value counts as `true`.

    >>> given(["--a=1", "--b", "2", "--c"], "b"), given(["--a=1"], "x"), given(["--c"], "c")
    ('2', None, 'true')
    """
    found = None
    for index, word in enumerate(arguments):
        if word.startswith(f"--{name}="):
            found = word.partition("=")[2]
        elif word == f"--{name}":
            following = arguments[index + 1 : index + 2]
            found = following[0] if following and not following[0].startswith("--") else "true"
    return found


def names_given(arguments: Sequence[str], group: str) -> set[str]:
    """Return the names within `group` that normalized `arguments` set.

    >>> sorted(names_given(["--craft.preset=er", "--craft.lambda_lr", "1", "--steps=3"], "craft"))
    ['lambda_lr', 'preset']
    """
    prefix = f"--{group}."
    return {word.removeprefix(prefix).partition("=")[0] for word in arguments if word.startswith(prefix)}


def without(arguments: Sequence[str], name: str) -> list[str]:
    """Return normalized `arguments` without flag `name` and its value.

    >>> without(["--a=1", "--print_config", "--b", "2"], "print_config")
    ['--a=1', '--b', '2']
    """
    kept: list[str] = []
    drop_value = False
    for word in arguments:
        if word == f"--{name}":
            drop_value = True
            continue
        if drop_value and not word.startswith("--"):
            drop_value = False
            continue
        drop_value = False
        if not word.startswith(f"--{name}="):
            kept.append(word)
    return kept
