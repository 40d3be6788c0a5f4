"""The file that outlives the process: read once at the start, and replaced as a whole now and then.

The composition root makes one `StateFile` if the configuration names a path. The path always holds one whole version, even
after a crash, a full disk or a power cut during a write: the new version is written to a file beside the path, synced to the
disk, and then renamed. Each writer uses a new name for that file, and locks the file while it writes. So a file that a crash
has left over is not locked, and is removed at the next start. The names of new files cannot be guessed, and links are never
followed, so links that others put into the folder have no effect. `StateFile` does not know what the bytes mean.

All methods block, so they are called in threads. Writes wait for one another.
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


_TRIES = 10  # for another try to fail, another updater must start in the same microseconds


class StateFile:
    """One path. Beside it stands `.new-…` during a write, and `.old` if an unreadable file was set aside."""

    def __init__(self, path: str, *, most: int) -> None:
        """At most `most` bytes are read. Raises Misconfigured if the path cannot be written."""
        self._path = Path(path)
        self._prefix = self._path.name + ".new-"
        self._old = self._path.with_name(self._path.name + ".old")
        self._most = most
        self._turn = Lock()
        refuse_unusable(self._path)
        self._tidy()

    def read(self) -> bytes | None:
        """The bytes that were written last; None if none were."""
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
        """Replace the file by these pieces: all of them or none."""
        with self._turn:
            try:
                self._write(pieces)
            except OSError as e:
                raise Unavailable(f"{self._path} cannot be written: {e.strerror or e}") from e

    def set_aside(self) -> str:
        """Rename the file, so that it is not overwritten. Returns the new name."""
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
                new.replace(
                    self._path
                )  # while it is locked: else an updater that starts may remove it as left over
        except BaseException:
            with suppress(OSError):  # half a file is of no use
                new.unlink()
            raise
        folder = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)  # syncs the name too
        finally:
            os.close(folder)

    def _begun(self) -> tuple[int, Path]:
        """A new, locked file. Only our user can read it, for keys may name people."""
        for _ in range(_TRIES):
            descriptor, name = mkstemp(dir=self._path.parent, prefix=self._prefix)
            with suppress(OSError):  # a disk without locks: then left-over files are never removed
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            if os.fstat(descriptor).st_nlink:
                return descriptor, Path(name)
            os.close(
                descriptor
            )  # an updater that started at this moment took the file for a left-over and removed it
        raise OSError(errno.EBUSY, "other updaters remove the file while it is written")

    def _tidy(self) -> None:
        """Remove the files that crashes during writes have left over."""
        for rest in self._path.parent.glob(f"{escape(self._prefix)}*"):
            with suppress(OSError), _opened(rest, os.O_NOFOLLOW) as file:
                fcntl.flock(
                    file, fcntl.LOCK_EX | fcntl.LOCK_NB
                )  # BlockingIOError: another updater writes it now
                rest.unlink()


def _opened(path: Path, flags: int = 0) -> BinaryIO:
    """Opens an ordinary file for reading. Another user may put a pipe into the folder, and to open a pipe may block for ever."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | flags)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is no ordinary file")
    return open(descriptor, "rb")  # noqa: PTH123  a descriptor, for its flags


def refuse_unusable(path: Path) -> None:
    """Raises Misconfigured if the path can never be written.

    It tries what a write does, so that missing rights, read-only mounts and missing folders all show.
    """
    if path.is_dir():
        raise Misconfigured(f"state: {path} is a directory; it must be the path of a file")
    try:
        # a name of its own: a predecessor may still write its last state
        with NamedTemporaryFile(dir=path.parent, prefix=f"{path.name}.probe-"):
            pass
        if path.exists():
            _opened(path).close()
    except OSError as e:
        raise Misconfigured(f"state: {path} cannot be used: {e.strerror or e}") from e
