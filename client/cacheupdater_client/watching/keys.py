"""The keys that one transaction has changed, until its commit or rollback.

The hooks make one `Keys` for each transaction and add keys as rows change. A savepoint takes a `mark`; its rollback goes
`back_to` the mark. The first keys are held in memory, each once. A transaction that changes more of them spills the rest
into a temporary file, which the system removes when it is closed. So a transaction of a million rows costs 1 MiB of memory
and some 20 MiB of disk. Beyond the file's cap keys are lost, and counted. Nothing here calls Redis.
"""

from __future__ import annotations

import tempfile
from contextlib import suppress
from typing import IO, TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

HELD_MAX = 10_000  # keys in memory: more than nearly every transaction changes
HELD_BYTES_MAX = 1024 * 1024  # of keys in memory, however long they are
SPILLED_BYTES_MAX = 256 * 1024 * 1024  # of the file: some ten million keys of 20 bytes
CHUNK = 1000  # keys that are handed out together: ten calls of the script
_LENGTH_BYTES = 4  # before each key in the file; Redis' longest key is 512 MiB


class Mark(NamedTuple):
    """How much there was when a savepoint began."""

    held: int
    spilled: int  # bytes
    spilled_keys: int
    lost: int


class Keys:
    """The keys of one transaction, in the order in which they came."""

    def __init__(self) -> None:
        self._held: dict[bytes, None] = {}
        self._held_bytes = 0
        self._file: IO[bytes] | None = None
        self._spilled = 0  # bytes in the file
        self._count = 0  # keys in the file
        self.lost = 0  # keys that found no room

    def __len__(self) -> int:
        """The number of keys. A key in the file may count more than once."""
        return len(self._held) + self._count

    def add(self, names: Iterable[bytes]) -> None:
        """These keys have changed."""
        for name in names:
            if name in self._held:
                continue
            if self._has_room(name):
                self._held[name] = None
                self._held_bytes += len(name)
            else:
                self._spill(name)

    def _has_room(self, name: bytes) -> bool:
        """Once there is a file, all further keys go there: so a mark in the file implies all of the memory."""
        if self._count or self.lost:
            return False
        return len(self._held) < HELD_MAX and self._held_bytes + len(name) <= HELD_BYTES_MAX

    def _spill(self, name: bytes) -> None:
        entry = len(name).to_bytes(_LENGTH_BYTES, "big") + name
        if self._spilled + len(entry) > SPILLED_BYTES_MAX:
            self.lost += 1
            return
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile()  # noqa: SIM115  closed by `close`, at the end of the transaction
            if (
                self._file.tell() != self._spilled
            ):  # only after a rollback: a seek empties the buffer into the file
                self._file.seek(self._spilled)
            self._file.write(entry)
        except OSError:  # no disk, no room: the transaction must not suffer
            self.lost += 1
            return
        self._spilled += len(entry)
        self._count += 1

    def mark(self) -> Mark:
        """What a savepoint remembers."""
        return Mark(len(self._held), self._spilled, self._count, self.lost)

    def back_to(self, mark: Mark) -> None:
        """The savepoint was rolled back: forgets what came after it began."""
        while len(self._held) > mark.held:
            name, _ = self._held.popitem()
            self._held_bytes -= len(name)
        self._spilled, self._count, self.lost = mark.spilled, mark.spilled_keys, mark.lost

    def chunks(self) -> Iterator[list[bytes]]:
        """All keys, at most CHUNK together."""
        chunk: list[bytes] = []
        for name in self._all():
            chunk.append(name)
            if len(chunk) == CHUNK:
                yield chunk
                chunk = []
        if chunk:
            yield chunk

    def _all(self) -> Iterator[bytes]:
        yield from self._held
        read = 0
        try:
            while self._file is not None and read < self._count:
                name = self._next(first=not read)
                if name is None:
                    break
                read += 1
                yield name
        except OSError:  # the disk filled up before the buffer was written
            pass
        self.lost += self._count - read

    def _next(self, *, first: bool) -> bytes | None:
        """The next key in the file; None if the file ends within it."""
        if self._file is None:
            return None
        if first:
            self._file.seek(0)
        length = int.from_bytes(self._file.read(_LENGTH_BYTES), "big")
        name = self._file.read(length)
        return name if name and len(name) == length else None

    def close(self) -> None:
        """The transaction is over: gives the file back."""
        if self._file is not None:
            with suppress(OSError):  # a full disk: the buffer cannot be written, and need not be
                self._file.close()
