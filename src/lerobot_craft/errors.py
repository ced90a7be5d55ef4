# SPDX-License-Identifier: Apache-2.0
"""The errors this package raises on purpose. It holds no logic and formats no messages."""


class CraftError(Exception):
    """Anything a user can put right: the message says what was got, what was expected and what to do."""


class CacheError(CraftError):
    """An anchor cache that is damaged, half-built, unreadable, or would be overwritten."""


class CacheMismatchError(CacheError):
    """A whole and readable anchor cache that belongs to another teacher, processor, tap or mode."""
