"""Where hints go: by the `emit` argument, the environment, or the conventional socket.

Called once for each client that is made. The only module of the client that reads the environment. The answer is a target's
URL, or None: then the client emits nothing and is plain redis-py. The conventional socket is a target even before an updater
has made it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

CONVENTIONAL_SOCKET = Path("/run/cacheupdater/hints.sock")
_NO = {"", "0", "false", "no", "off"}


class Choice(NamedTuple):
    """Where the hints of a client go."""

    url: str | None  # None: nowhere
    why: str
    awaited: bool = False  # no setting names it: it counts from the moment at which its file exists


def choice_of(emit: str | None) -> Choice:
    """The target that `emit` stands for."""
    environment = os.environ  # noqa: TID251  the client's settings
    if environment.get("CACHEUPDATER_DISABLED", "").lower() not in _NO:
        return Choice(None, "CACHEUPDATER_DISABLED is set")
    why = "emit"
    if emit == "auto":
        emit, why = environment.get("CACHEUPDATER_EMIT") or "auto", "CACHEUPDATER_EMIT"
    if emit == "auto":
        return Choice(f"unix://{CONVENTIONAL_SOCKET}", "the conventional socket", awaited=True)
    if emit in {None, "none"}:
        return Choice(None, f"{why} says none")
    return Choice(emit, why)


def prefixes_of(only: Sequence[str | bytes] | None) -> tuple[bytes, ...]:
    """`only` as bytes; empty means: whatever the updater declares."""
    if only is None:
        return ()
    if isinstance(only, (str, bytes)) or not only:
        raise ValueError('only takes a list of prefixes, such as ["product:"]; emit="none" emits nothing')
    return tuple(sorted(each.encode() if isinstance(each, str) else bytes(each) for each in only))
