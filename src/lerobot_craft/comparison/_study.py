# SPDX-License-Identifier: Apache-2.0
"""Methods of one's own from a TOML file; runs none of them.

[methods."no projection"]
base = "craft"                                # a method of the package to start from, or nothing
flags = { "craft.use_grad_projection" = "false" }
cache = { selection = "random" }              # changes to its anchors, where it has any
setting = "craft.epsilon_start"               # what is tuned, if anything is
strengths = [0.003, 0.01, 0.03, 0.1]
"""

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

from lerobot_craft.comparison._methods import METHODS, OLD, PROMPTED, Method
from lerobot_craft.errors import UsageError

KEYS = ("base", "title", "flags", "cache", "source", "setting", "strengths")


def read_study(path: Path) -> dict[str, Method]:
    """Return the methods of a study file by name.

    Raises:
        UsageError: If it is not there or says what cannot be understood.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"`--study={path}` could not be read: expected a TOML file of methods. ({error})") from error
    entries = content.get("methods", {})
    problems = [] if entries else ['it has no table of methods, such as [methods."no projection"].']
    for name, entry in entries.items():
        problems += [f"`{name}` has `{key}`: expected {', '.join(KEYS)}." for key in entry if key not in KEYS]
        if (base := entry.get("base")) is not None and base not in METHODS:
            problems.append(f"`{name}` is based on `{base}`: expected one of {', '.join(METHODS)}.")
        if (source := entry.get("source", OLD)) not in (OLD, PROMPTED):
            problems.append(f"`{name}` has `source={source}`: expected {OLD} or {PROMPTED}.")
    if problems:
        raise UsageError("\n".join([f"`--study={path}` cannot be used:", *(f"  - {problem}" for problem in problems)]))
    return {name: _method(name, entry) for name, entry in entries.items()}


def _method(name: str, entry: dict[str, Any]) -> Method:
    base = METHODS[entry["base"]] if "base" in entry else Method(name, {})
    cache = base.cache
    if "cache" in entry:
        cache = {**(cache or {}), **entry["cache"]}
    return replace(
        base,
        title=entry.get("title", name),
        flags={**base.flags, **entry.get("flags", {})},
        cache=cache,
        source=entry.get("source", base.source),
        setting=entry.get("setting"),
        strengths=tuple(entry.get("strengths", ())),
    )
