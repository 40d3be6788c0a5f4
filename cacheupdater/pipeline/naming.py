"""How a key is named in logs and on pages: keys are data, so the configuration says whether they are shown.

`log_keys: full` shows the key. `hash` shows a short digest, by which a reader sees that two lines are about the same key.
`off` shows nothing.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Literal, TypeAlias

LogKeys: TypeAlias = Literal["full", "hash", "off"]

_DIGEST_BYTES = 6  # enough to tell the keys of one log apart


def named(key: bytes, how: LogKeys) -> str:
    """The key as it may be shown; empty where nothing may be shown."""
    if how == "full":
        return key.decode("utf-8", "backslashreplace")
    return "#" + blake2b(key, digest_size=_DIGEST_BYTES).hexdigest() if how == "hash" else ""
