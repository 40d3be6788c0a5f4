"""Where hints shall go: the `emit` argument, the environment, or the conventional socket.

Read once for each client that is made; the only place of the client that knows the environment. The answer is a
target's URL, or None: then nothing is emitted and the client is plain redis-py.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

CONVENTIONAL_SOCKET = Path("/run/cacheupdater/hints.sock")
_NO = {"", "0", "false", "no", "off"}


def target_of(emit: str | None) -> str | None:
    """The URL that `emit` stands for; None if nothing shall be emitted."""
    environment = os.environ  # noqa: TID251  the client's settings
    if environment.get("CACHEUPDATER_DISABLED", "").lower() not in _NO:
        return None
    if emit == "auto":
        emit = environment.get("CACHEUPDATER_EMIT") or "auto"
    if emit == "auto":
        there = os.path.exists(CONVENTIONAL_SOCKET)  # noqa: PTH110  Path.exists raises where a directory is closed to us
        return f"unix://{CONVENTIONAL_SOCKET}" if there else None
    return None if emit in {None, "none"} else emit


def prefixes_of(only: Sequence[str | bytes] | None) -> tuple[bytes, ...]:
    """`only` as bytes; empty means: whatever the updater declares."""
    if only is None:
        return ()
    if isinstance(only, (str, bytes)) or not only:
        raise ValueError('only takes a list of prefixes, such as ["product:"]; emit="none" emits nothing')
    return tuple(sorted(each.encode() if isinstance(each, str) else bytes(each) for each in only))
