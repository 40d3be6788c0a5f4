"""The file that outlives the process: read once at the start, replaced as a whole now and then.

The composition root makes one `StateFile` where the configuration names a path. Whatever happens while it writes (a
crash, a full disk, a power cut), the path holds one whole version: the new one is written beside it, brought to the
disk, and then takes its name. What the bytes mean is not known here.

All methods block; they are called in threads. Writes wait for one another.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from threading import Lock
from typing import TYPE_CHECKING

from cacheupdater.errors import Faulty, Misconfigured, Unavailable

if TYPE_CHECKING:
    from collections.abc import Sequence

_MODE = 0o600  # keys may name people


class StateFile:
    """One path, and beside it `.new` while it is written, `.old` where something else was found in its place."""

    def __init__(self, path: str, *, most: int) -> None:
        """At most `most` bytes are read. Misconfigured, if nothing could ever be written."""
        self._path = Path(path)
        self._new = self._path.with_name(self._path.name + ".new")
        self._old = self._path.with_name(self._path.name + ".old")
        self._most = most
        self._turn = Lock()
        self._check()

    def read(self) -> bytes | None:
        """What was written last; None when nothing ever was."""
        try:
            with self._path.open("rb") as file:
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
                with suppress(OSError):  # half a file only takes room
                    self._new.unlink(missing_ok=True)
                raise Unavailable(f"{self._path} cannot be written: {e.strerror or e}") from e

    def set_aside(self) -> str:
        """Keep what is there from being written over."""
        try:
            self._path.replace(self._old)
        except OSError as e:
            raise Unavailable(f"{self._path} cannot be renamed: {e.strerror or e}") from e
        return str(self._old)

    def _write(self, pieces: Sequence[bytes]) -> None:
        descriptor = os.open(self._new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _MODE)
        with open(descriptor, "wb") as file:  # noqa: PTH123  a descriptor, for its mode
            file.writelines(pieces)
            file.flush()
            os.fsync(descriptor)
        self._new.replace(self._path)
        folder = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)  # the name too
        finally:
            os.close(folder)

    def _check(self) -> None:
        """By doing what will be done: rights, read-only mounts and missing folders all show."""
        if self._path.is_dir():
            raise Misconfigured(f"state: {self._path} is a directory; it must be the path of a file")
        try:
            # under a name of its own: a predecessor may be writing its last save
            with NamedTemporaryFile(dir=self._path.parent, prefix=f"{self._path.name}.probe-"):
                pass
            if self._path.exists():
                with self._path.open("rb"):
                    pass
        except OSError as e:
            raise Misconfigured(f"state: {self._path} cannot be used: {e.strerror or e}") from e
