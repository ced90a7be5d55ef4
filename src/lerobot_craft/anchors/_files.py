# SPDX-License-Identifier: Apache-2.0
"""Files that are whole or absent, whatever happens meanwhile. It knows nothing of what is in them."""

import errno
import hashlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lerobot_craft.errors import CacheError

TEMPORARY = ".tmp"
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def write_whole(path: Path, data: bytes) -> None:
    """Write under a temporary name, flush to the device, rename.

    Raises:
        CacheError: The disk is full or cannot be written. No part of the file stays behind.
    """
    temporary = path.with_name(path.name + TEMPORARY)
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        reason = "the disk is full" if error.errno in _FULL else f"it cannot be written ({error.strerror})"
        raise CacheError(
            f"`{path}`: {reason}; {len(data):,} bytes were needed. What was finished before is kept: "
            f"make room and give the same command again."
        ) from error


def sync_folder(folder: Path) -> None:
    """Flush a folder's entries to the device, so that a rename survives a power cut."""
    if sys.platform == "win32":  # folders cannot be opened there, and renames are journaled
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256_file(path: Path) -> str:
    """Return the SHA-256 of a file, read in pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Hold a folder against a second process that would build into it at the same time.

    The kernel drops the lock with the process, so a killed build leaves none behind.

    Raises:
        CacheError: Another process holds it.
    """
    if sys.platform == "win32":
        yield
        return
    import fcntl

    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise CacheError(f"`{folder}` is being built by another process. Wait for it to end.") from error
        yield
    finally:
        os.close(descriptor)
