"""The scripts of the depot, each with the hash by which Redis knows it. They live beside this module, but `put.lua`.

`put.lua` belongs to the protocol, for clients and other producers send it too.
"""

from __future__ import annotations

from hashlib import sha1
from pathlib import Path
from typing import NamedTuple

from cacheupdater_client.protocol import streams


class Script(NamedTuple):
    """One script."""

    text: str
    sha: str


def _script(*names: str) -> Script:
    text = "\n".join(Path(__file__).with_name(f"{name}.lua").read_text("utf-8") for name in names)
    return Script(text, sha1(text.encode(), usedforsecurity=False).hexdigest())


RENEW = _script("roster", "renew")
CLAIM = _script("roster", "claim")
LEAVE = _script("roster", "leave")
RELEASE = _script("release")
STANDING = _script("standing")
ENTER = _script("enter")
COMMIT = _script("commit")
LOOK = _script("look")
LAG = _script("lag")
DROP = _script("drop")
PUT = Script(streams.PUT, streams.PUT_SHA)
