"""The file that outlives the process: read once at the start, replaced as a whole now and then.

The composition root makes one `StateFile` where the configuration names a path. Whatever happens while it writes (a
crash, a full disk, a power cut), the path holds one whole version: the new one is written beside it, brought to the
disk, and then takes its name. Each writer has a name of its own for that, and locks the file while it writes; so what a
crash has left is told from what is being written, and removed at the next start. What the bytes mean is not known here.
Names of new files cannot be guessed and are never followed, so links that others put into the folder lead nowhere.

All methods block; they are called in threads. Writes wait for one another.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from contextlib import suppress
from glob import escape
from pathlib import Path
from tempfile import NamedTemporaryFile, mkstemp
from threading import Lock
from typing import TYPE_CHECKING, BinaryIO

from cacheupdater.errors import Faulty, Misconfigured, Unavailable

if TYPE_CHECKING:
    from collections.abc import Sequence


_TRIES = 10  # others would have to start in the same microseconds each time


class StateFile:
    """One path, and beside it `.new-…` while it is written, `.old` where something else was found in its place."""

    def __init__(self, path: str, *, most: int) -> None:
        """At most `most` bytes are read. Misconfigured, if nothing could ever be written."""
        self._path = Path(path)
        self._prefix = self._path.name + ".new-"
        self._old = self._path.with_name(self._path.name + ".old")
        self._most = most
        self._turn = Lock()
        refuse_unusable(self._path)
        self._tidy()

    def read(self) -> bytes | None:
        """What was written last; None when nothing ever was."""
        try:
            with _opened(self._path) as file:
                data = file.read(self._most + 1)
        except FileNotFoundError:
            return None
        except OSError as e:
            raise Faulty(f"it cannot be read: {e.strerror or e}") from e
        if len(data) > self._most:
            raise Faulty(f"it is larger than {self._most} bytes")
        return data

    def write(self, pieces: Sequence[bytes]) -> None:
        """All of it or nothing."""
        with self._turn:
            try:
                self._write(pieces)
            except OSError as e:
                raise Unavailable(f"{self._path} cannot be written: {e.strerror or e}") from e

    def set_aside(self) -> str:
        """Keep what is there from being written over."""
        try:
            self._path.replace(self._old)
        except OSError as e:
            raise Unavailable(f"{self._path} cannot be renamed: {e.strerror or e}") from e
        return str(self._old)

    def _write(self, pieces: Sequence[bytes]) -> None:
        descriptor, new = self._begun()
        try:
            with open(descriptor, "wb") as file:  # noqa: PTH123  a descriptor, for its lock
                file.writelines(pieces)
                file.flush()
                os.fsync(descriptor)
                new.replace(self._path)  # while it is locked: else somebody who starts may take it for a rest
        except BaseException:
            with suppress(OSError):  # half a file only takes room
                new.unlink()
            raise
        folder = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)  # the name too
        finally:
            os.close(folder)

    def _begun(self) -> tuple[int, Path]:
        """A new file of ours, locked. Readable by nobody else, for keys may name people."""
        for _ in range(_TRIES):
            descriptor, name = mkstemp(dir=self._path.parent, prefix=self._prefix)
            with suppress(OSError):  # a disk without locks: then a rest is never told from a file, and stays
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            if os.fstat(descriptor).st_nlink:
                return descriptor, Path(name)
            os.close(descriptor)  # somebody who started in this moment took it for a rest
        raise OSError(errno.EBUSY, "others take away what is being written")

    def _tidy(self) -> None:
        """What a crash has left while it was written."""
        for rest in self._path.parent.glob(f"{escape(self._prefix)}*"):
            with suppress(OSError), _opened(rest, os.O_NOFOLLOW) as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # BlockingIOError: it is being written
                rest.unlink()


def _opened(path: Path, flags: int = 0) -> BinaryIO:
    """An ordinary file, to read. Whoever may write to the folder can put a pipe there, and opening one waits without end."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | flags)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is no ordinary file")
    return open(descriptor, "rb")  # noqa: PTH123  a descriptor, for its flags


def refuse_unusable(path: Path) -> None:
    """Misconfigured, if nothing could ever be written there. Found out by doing what will be done: rights, read-only mounts
    and missing folders all show."""
    if path.is_dir():
        raise Misconfigured(f"state: {path} is a directory; it must be the path of a file")
    try:
        # under a name of its own: a predecessor may be writing its last save
        with NamedTemporaryFile(dir=path.parent, prefix=f"{path.name}.probe-"):
            pass
        if path.exists():
            _opened(path).close()
    except OSError as e:
        raise Misconfigured(f"state: {path} cannot be used: {e.strerror or e}") from e
