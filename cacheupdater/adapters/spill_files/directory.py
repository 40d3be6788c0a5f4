"""The directory of a spill: one file per segment, and a lock that one process holds.

`collector.collector` opens it at its start and closes it at its end. All methods block, so they are called in a thread; one
thread at a time. Only our user may enter the directory and read the files, for keys may name people. Files with other names
are left alone, links are not followed, and a segment that cannot be read stays where it is. `sync` makes all urgent packs
durable with one fsync per file, however many packs were appended.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import stat
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from cacheupdater.adapters.spill_files.records import MARKER_BYTES, OVERHEAD, Reader, record
from cacheupdater.errors import Misconfigured, Unavailable

LOCK = "lock"
_NAME = re.compile(r"(urgent|touches)-([0-9]{16})-([0-9a-f]{16})\.segment")
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
_OLD = (
    os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
)  # a pipe that others put there must not block


class Found(NamedTuple):
    """A segment that is there."""

    number: int
    urgent: bool
    size: int


class SpillFiles:
    """The segments in one directory, by their numbers."""

    def __init__(self, path: str) -> None:
        """Raises Misconfigured if the directory cannot be used, or another process uses it."""
        self._path = Path(path)
        self._names: dict[int, str] = {}
        self._open: dict[int, int] = {}  # descriptors of segments that are being written
        self._unsynced: set[int] = set()
        self._new_names = False
        try:
            self._path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._refuse_shared()
            self._lock = self._locked()
            self._entries = sorted(each.name for each in self._path.iterdir())
        except OSError as e:
            raise Misconfigured(f"spill: {self._path} cannot be used: {e.strerror or e}") from e

    def _refuse_shared(self) -> None:
        found = self._path.stat()
        if found.st_uid != os.geteuid() or found.st_mode & 0o077:
            raise Misconfigured(
                f"spill: {self._path} must belong to the collector's user, and nobody else may enter it:"
                " name a directory that does not exist yet, or chmod 700"
            )

    def _locked(self) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(self._path / LOCK, flags, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise Misconfigured(
                f"spill: another collector uses {self._path}; each collector needs a directory of its own"
            ) from None
        except OSError:
            os.close(descriptor)
            raise
        return descriptor

    def close(self) -> None:
        """Leave the directory to the next process."""
        for number in list(self._open):
            self.seal(number)
        os.close(self._lock)

    # --- what an earlier process has left ---------------------------------------------------------------

    def found(self) -> list[Found]:
        """The segments that were there at the start, the oldest first."""
        segments = []
        for entry in self._entries:
            match = _NAME.fullmatch(entry)
            if match is None or int(match[2]) in self._names:
                continue
            with suppress(OSError):  # it has just been removed
                self._names[int(match[2])] = entry
                size = (self._path / entry).lstat().st_size
                segments.append(Found(int(match[2]), match[1] == "urgent", size))
        return sorted(segments)

    def reader(self, number: int) -> Reader:
        """Reads a segment from its beginning. Raises Unavailable."""
        name = self._names[number]
        try:
            descriptor = os.open(self._path / name, _OLD)
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                os.close(descriptor)
                raise OSError(errno.EINVAL, "it is no ordinary file")  # noqa: TRY301  as any other fault of it
        except OSError as e:
            raise Unavailable(f"{self._path / name} cannot be read: {e.strerror or e}") from e
        return Reader(open(descriptor, "rb"), _marker(name))  # noqa: PTH123  a descriptor, and the reader closes it

    # --- what this process writes -------------------------------------------------------------------------

    def append(self, number: int, pack: bytes, *, urgent: bool) -> int:
        """Add a pack to this segment, or begin the segment with it. Returns the bytes that it takes. Raises Unavailable."""
        try:
            descriptor = self._open.get(number)
            if descriptor is None:
                descriptor = self._begin(number, urgent=urgent)
            data = record(_marker(self._names[number]), pack)
            if urgent:
                self._unsynced.add(number)
            _write(descriptor, data)
        except OSError as e:
            raise Unavailable(f"{self._path} cannot be written: {e.strerror or e}") from e
        return OVERHEAD + len(pack)

    def _begin(self, number: int, *, urgent: bool) -> int:
        kind = "urgent" if urgent else "touches"
        name = f"{kind}-{number:016}-{secrets.token_hex(MARKER_BYTES)}.segment"
        descriptor = os.open(self._path / name, _NEW, 0o600)
        self._names[number], self._open[number] = name, descriptor
        self._new_names = True
        return descriptor

    def sync(self) -> None:
        """All urgent packs are on the disk when this returns. Raises Unavailable; a second try would prove nothing."""
        unsynced, self._unsynced = self._unsynced, set()
        try:
            for number in unsynced:
                os.fsync(self._open[number])
            if unsynced and self._new_names:
                self._sync_names()
        except OSError as e:
            raise Unavailable(f"{self._path} cannot be synced: {e.strerror or e}") from e

    def _sync_names(self) -> None:
        folder = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        self._new_names = False

    @property
    def written(self) -> list[int]:
        """The segments to which packs may be added."""
        return list(self._open)

    def seal(self, number: int) -> None:
        """Nothing more is added to this segment. What was not synced before is not on the disk for certain."""
        descriptor = self._open.pop(number, None)
        self._unsynced.discard(number)
        if descriptor is not None:
            with suppress(OSError):  # what was synced is on the disk, whatever this says
                os.close(descriptor)

    def remove(self, number: int) -> None:
        """Delete a segment. Raises Unavailable, and then the next process finds the segment again."""
        self.seal(number)
        name = self._names.pop(number, None)
        if name is None:
            return
        try:
            (self._path / name).unlink(missing_ok=True)
        except OSError as e:
            raise Unavailable(f"{self._path / name} cannot be removed: {e.strerror or e}") from e


def _marker(name: str) -> bytes:
    match = _NAME.fullmatch(name)
    assert match is not None  # only such names are kept
    return bytes.fromhex(match[3])


def _write(descriptor: int, data: bytes) -> None:
    """Writes all, or takes back the part that was written."""
    before = os.fstat(descriptor).st_size
    rest = memoryview(data)
    try:
        while rest:
            rest = rest[os.write(descriptor, rest) :]
    except OSError:
        with suppress(OSError):
            os.ftruncate(descriptor, before)
        raise
