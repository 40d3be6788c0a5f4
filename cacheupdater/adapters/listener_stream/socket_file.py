"""A unix socket's file: put where it shall be, in the place of a dead one and never of a living one.

`StreamListener` asks for it at its start. Whoever may write to the folder can put anything there, so nothing that stands
there is followed or taken for ours, and the lock that guards the moment is a file that only we can open.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import socket
import stat
from typing import TYPE_CHECKING

from cacheupdater.errors import Misconfigured, Unavailable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

SOCKET_MODE = 0o660  # applications share the group of the updater
BACKLOG = 512  # a whole machine of workers may reconnect at the same instant after a restart
LOCK_S = 5.0  # another of ours that starts has the lock for a millisecond
LOCK_EVERY_S = 0.05


async def bound_at(path: Path) -> socket.socket:
    """A listening socket at `path`, in the place of a dead one but never of a living one."""
    path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
    async with _claimed(path.with_name(f".{path.name}.lock")):
        _remove_dead(path)
        return _bound(path)


def _bound(path: Path) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.bind(str(path))
        path.chmod(SOCKET_MODE)  # before listen: nobody can connect under other permissions
        sock.listen(BACKLOG)
    except OSError:
        sock.close()
        raise
    return sock


@contextlib.asynccontextmanager
async def _claimed(lock: Path) -> AsyncIterator[None]:
    """Two processes that start at once must not both take the other's fresh socket for a dead one.

    Whoever may read a file or folder can hold its lock for ever, so this is a file for us alone. It is removed while
    it is locked, so that nothing is left and nobody locks a file that is gone.
    """
    clock = asyncio.get_running_loop().time
    deadline = clock() + LOCK_S
    while (descriptor := _locked(lock)) is None:
        if clock() > deadline:
            raise Unavailable(
                f"listen: {lock} is another user's, or of another updater that begins to listen and does not come to an end"
            )
        await asyncio.sleep(LOCK_EVERY_S)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.unlink(lock)  # noqa: PTH108  pathlib's is refused in coroutines, and this takes no time
        os.close(descriptor)


def _locked(lock: Path) -> int | None:
    """The descriptor that holds it; None while somebody else has it, or something else stands there."""
    try:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(lock, flags, 0o600)
    except OSError:
        if lock.is_symlink() or lock.exists():
            return None
        raise  # the folder takes no files: waiting would not help
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        found = os.fstat(descriptor)
        ours = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077
        if ours and os.path.samestat(found, lock.lstat()):
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass  # it is locked, or was removed by the one that had it
    os.close(descriptor)
    return None


def _remove_dead(path: Path) -> None:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise Misconfigured(f"listen: {path} is there and is no socket; remove it or choose another path")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
        except OSError:
            pass  # alive: too busy to answer, or not for us to talk to
    raise Misconfigured(f"listen: another process listens on {path}; stop it or choose another path")
