"""Makes the file of a unix socket. It replaces a dead socket, and never a living one.

`StreamListener` calls `bound_at` at its start. Any program that may write to the folder can put files there. So no link there
is followed, no file there is believed to be ours, and the lock that guards the replacement is a file that only we can open.
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
BACKLOG = 512  # all workers of a machine may reconnect at the same instant after a restart
LOCK_S = 5.0  # another updater that starts holds the lock for a millisecond
LOCK_EVERY_S = 0.05


async def bound_at(path: Path) -> socket.socket:
    """A listening socket at `path`. It replaces a dead socket there, and never a living one."""
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
    """Holds a lock: of two processes that start at once, none may take the other's fresh socket for a dead one.

    A process that may read a file or folder can hold its lock for ever, so the lock file is readable by our user only. It is
    removed while it is locked, so that no file is left over, and no process keeps a lock on a removed file.
    """
    clock = asyncio.get_running_loop().time
    deadline = clock() + LOCK_S
    while (descriptor := _locked(lock)) is None:
        if clock() > deadline:
            raise Unavailable(
                f"listen: {lock} is another user's file, or another updater holds it and has not begun to listen in time"
            )
        await asyncio.sleep(LOCK_EVERY_S)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.unlink(lock)  # noqa: PTH108  pathlib's is refused in coroutines, and this takes no time
        os.close(descriptor)


def _locked(lock: Path) -> int | None:
    """The descriptor that holds the lock; None while another process holds it, or if the file is not ours."""
    try:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(lock, flags, 0o600)
    except OSError:
        if lock.is_symlink() or lock.exists():
            return None
        raise  # no file can be made in this folder: waiting would not help
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        found = os.fstat(descriptor)
        ours = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077
        if ours and os.path.samestat(found, lock.lstat()):
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass  # another process holds it, or has just removed it
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
            pass  # alive: too busy to answer, or we may not connect to it
    raise Misconfigured(f"listen: another process listens on {path}; stop it or choose another path")
