# SPDX-License-Identifier: Apache-2.0
"""The errors this package raises on purpose; anything else that escapes is a bug of ours."""


class CraftError(Exception):
    """Base of every error whose message is meant for the person at the keyboard."""


class SettingsError(CraftError, ValueError):
    """Settings that cannot work; the message lists every problem found, not only the first."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        lines = "\n".join(f"  - {problem}" for problem in problems)
        super().__init__(f"{len(problems)} setting(s) cannot be used:\n{lines}")


UNREACHED = (
    "The retention loss depends on none of the trainable parameters: expected a graph that reaches at least one. "
    "Was its input detached, or is every parameter in front of the tap frozen?"
)


class RetentionError(CraftError):
    """A retention term returned something the constrained step cannot use."""


class StateError(CraftError):
    """A saved state does not fit the object it is loaded into."""


class UsageError(CraftError):
    """The command as typed cannot work; the message says what to type instead."""


class RunError(CraftError):
    """A run that began could not go on; the message says what is left on disk."""


class TapError(CraftError):
    """A hidden state cannot be taken where it was asked for, or not pooled as asked."""


class CacheError(CraftError):
    """An anchor cache that is damaged, half-built, unreadable, or would be overwritten."""


class CacheMismatchError(CacheError):
    """A whole and readable anchor cache that belongs to another teacher, processor, tap or mode."""
