"""The words that a setting may be one of. `models` reads them from the file, `settings` hands them to the service."""

from __future__ import annotations

from typing import Literal, TypeAlias

WrongType: TypeAlias = Literal["refuse", "replace"]  # an older name for Foreign
Foreign: TypeAlias = Literal["keep", "replace"]
Rows: TypeAlias = Literal["one", "many"]
Policy: TypeAlias = Literal["price", "fixed"]
LogKeys: TypeAlias = Literal["full", "hash", "off"]
Encrypted: TypeAlias = Literal["off", "on", "verify"]
