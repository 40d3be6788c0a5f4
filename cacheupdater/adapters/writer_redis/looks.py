"""What readers of some keys find: a script that only reads, with one call for each key, and the reading of its replies.

Both writers send these calls to the servers that have the keys. A script can check sizes, so that no value leaves Redis that
is larger than any value of ours. The script uses only commands that the writer may run anyway. An error reply (a right is
missing, a slot has moved) means that the state of the key is not known. It is not reported, for only figures depend on it.
"""

from __future__ import annotations

from hashlib import sha1
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cacheupdater.ports import Found
from cacheupdater_client.protocol import fence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cacheupdater.ports import Value

_TOKENS_PER_SECOND = 1e9  # microseconds, and three digits that break ties
_PARTS = 4
_TEXT = Path(__file__).with_name("look.lua").read_text("utf-8")
LOOK = fence.Script(_TEXT, sha1(_TEXT.encode(), usedforsecurity=False).hexdigest())


def calls(keys: Sequence[bytes], *, values: bool) -> list[tuple[Any, ...]]:
    """The arguments of the script: one call for each key, for in a cluster two keys may be on different nodes."""
    most = fence.SCRIPT_BYTES_MAX if values else 0
    return [(2, key, floor, most) for key, floor in zip(keys, fence.floor_names(keys), strict=True)]


def read(replies: Sequence[Any]) -> list[Found | None]:
    """What readers find at each key; None where it is not known."""
    return [_found(each) if isinstance(each, list) and len(each) == _PARTS else None for each in replies]


def _found(said: Sequence[Any]) -> Found | None:
    time, here, floor, held = said
    if here == b"none":
        return Found(here=False, age=None, removed=floor is not None)
    value = _value(here, held)
    newest = fence.floor_of(floor) if isinstance(floor, bytes) else None
    if newest is None or not fence.tells_age(newest):
        return Found(here=True, age=None, value=value)
    now = fence.token_of(int(time[0]), int(time[1]))
    age = max(0.0, (now - newest) / _TOKENS_PER_SECOND)
    return Found(here=True, age=age, wrote=fence.form_of(newest), value=value)


def _value(kind: bytes, held: Any) -> Value:
    if kind == b"string":
        return held if isinstance(held, bytes) else None
    return dict(zip(held[::2], held[1::2], strict=True)) if isinstance(held, list) else None
