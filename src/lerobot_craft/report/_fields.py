# SPDX-License-Identifier: Apache-2.0
"""JSON read with care: whatever is missing or of another kind is named with its file; knows no file format of ours."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lerobot_craft.errors import UsageError
from lerobot_craft.report._model import Estimate

SCHEMA = 1


class Fields:
    """A JSON object and where it is from.

    Args:
        values: The object.
        where: The file, and the place in it.
    """

    def __init__(self, values: dict[str, Any], where: str) -> None:
        self.values = values
        self.where = where

    def __contains__(self, key: str) -> bool:
        return self.values.get(key) is not None

    def number(self, key: str) -> float:
        """Return a number that must be there."""
        value = self.values.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._wrong(key, "a number")
        return float(value)

    def number_or_none(self, key: str) -> float | None:
        """Return a number, None where it is absent, null or NaN."""
        if key not in self:
            return None
        value = self.number(key)
        return value if math.isfinite(value) else None

    def whole_or_none(self, key: str) -> int | None:
        """Return a whole number, None where it is absent."""
        value = self.number_or_none(key)
        return None if value is None else int(value)

    def text(self, key: str) -> str:
        """Return a text that must be there."""
        value = self.values.get(key)
        if not isinstance(value, str):
            raise self._wrong(key, "a text")
        return value

    def text_or_none(self, key: str) -> str | None:
        """Return a text, None where it is absent."""
        return self.text(key) if key in self else None

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of texts that must be there."""
        value = self.values.get(key)
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise self._wrong(key, "a list of texts")
        return tuple(value)

    def child(self, key: str) -> "Fields":
        """Return an object; an empty one where it is absent."""
        value = self.values.get(key)
        if value is None:
            return Fields({}, f"{self.where}, `{key}`")
        if not isinstance(value, dict):
            raise self._wrong(key, "an object")
        return Fields(value, f"{self.where}, `{key}`")

    def children(self, key: str) -> list["Fields"]:
        """Return a list of objects; an empty one where it is absent."""
        value = self.values.get(key)
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
            raise self._wrong(key, "a list of objects")
        return [Fields(one, f"{self.where}, `{key}[{index}]`") for index, one in enumerate(value)]

    def named(self) -> Iterator[tuple[str, "Fields"]]:
        """Go through the members of an object of objects."""
        for key in self.values:
            yield key, self.child(key)

    def numbers(self, key: str) -> dict[str, float]:
        """Return an object of numbers, without those that are null or NaN; empty where it is absent."""
        child = self.child(key)
        found = {name: child.number_or_none(name) for name in child.values}
        return {name: value for name, value in found.items() if value is not None}

    def estimate(self, key: str) -> Estimate | None:
        """Return a number with its interval: an object with `mean`, or the bare number; None where it is absent."""
        if key not in self:
            return None
        if not isinstance(self.values[key], dict):
            bare = self.number_or_none(key)
            return None if bare is None else Estimate(bare)
        child = self.child(key)
        mean = child.number_or_none("mean")
        if mean is None:
            return None
        values = child.values.get("values")
        known = values if isinstance(values, list) else []
        kept = tuple(float(one) for one in known if isinstance(one, int | float) and math.isfinite(one))
        return Estimate(mean, child.number_or_none("low"), child.number_or_none("high"), kept)

    def estimates(self, key: str) -> dict[str, Estimate]:
        """Return an object of estimates; empty where it is absent."""
        child = self.child(key)
        found = {name: child.estimate(name) for name in child.values}
        return {name: value for name, value in found.items() if value is not None}

    def _wrong(self, key: str, expected: str) -> UsageError:
        got = json.dumps(self.values[key])[:60] if key in self.values else "missing"
        return UsageError(f"{self.where}: `{key}` is {got}: expected {expected}. Make the file again.")


def read_json(path: Path) -> Fields:
    """Return the object in a file.

    Raises:
        UsageError: If it cannot be read, is no JSON, or no object.
    """
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"`{path}` could not be read ({error.strerror}): expected a JSON file of ours.") from error
    except ValueError as error:
        raise UsageError(
            f"`{path}` is no JSON ({error}): was it cut short? Run the command that wrote it again."
        ) from error
    if not isinstance(values, dict):
        raise UsageError(
            f"`{path}` holds a {type(values).__name__}: expected a JSON object that a command of ours wrote."
        )
    return Fields(values, str(path))


def check_schema(fields: Fields) -> None:
    """Refuse a file that a newer version wrote.

    Raises:
        UsageError: If its schema is not one this version knows.
    """
    schema = fields.number("schema")
    if schema > SCHEMA:
        writer = fields.text_or_none("version") or "a newer version"
        raise UsageError(
            f"`{fields.where}` has schema {schema:g}, written by lerobot-craft {writer}; this version reads up to "
            f"{SCHEMA}: update it with `pip install -U lerobot-craft`."
        )
