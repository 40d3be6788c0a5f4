"""The words that a setting may be one of. `models` types settings by them."""

from __future__ import annotations

from typing import Literal, TypeAlias

WrongType: TypeAlias = Literal["refuse", "replace"]  # an older name for Foreign
Foreign: TypeAlias = Literal["keep", "replace"]
Framework: TypeAlias = Literal["django", "django-redis", "flask-caching", "dogpile", "cashews", "aiocache"]
Serializer: TypeAlias = Literal["pickle", "json", "string", "msgpack"]
Rows: TypeAlias = Literal["one", "many"]
Policy: TypeAlias = Literal["price", "fixed"]
PriorityName: TypeAlias = Literal["high", "normal", "low"]
LogKeys: TypeAlias = Literal["full", "hash", "off"]
Encrypted: TypeAlias = Literal["off", "on", "verify"]
