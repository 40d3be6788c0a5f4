"""A tracer that patches `execute_command` on a class of ours sees every command, as with redis-py; reads pay nothing for it.

`Redis` has shorter ways for its hottest commands, which bypass its own `execute_command`. `observe.Traceable` notices a patch
on an object. This module's metaclass notices a patch on a class, and turns the short ways off. A check at each read would
cost tens of nanoseconds. When the patch is removed, the short ways stay off, as on an object.
"""

from __future__ import annotations

from typing import Any

import redis

from cacheupdater_client.observe import give_way

# redis-py's classes have a metaclass of their own; whatever can be mixed with them can be mixed with ours
_Base: Any = type(redis.Redis)


class Patchable(_Base):  # type: ignore[misc]  # redis-py's, which is known at run time only
    """The metaclass of our clients."""

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, value)
        if name == "execute_command":
            quick = next(each for each in self.__mro__ if "_long_way" in vars(each))
            give_way(self, quick, patched=True)
