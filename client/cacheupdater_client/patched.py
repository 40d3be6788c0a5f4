"""Who patches `execute_command` on a class of ours sees every command, as with redis-py; reads pay nothing to know it.

`Redis` has shorter ways for its hottest commands, past its own `execute_command`. A tracer that patches an object is seen by
`observe.Traceable`; one that patches a class is seen here, by the class of that class: it takes the short ways off. To look
at each read would cost tens of nanoseconds. A patch that is taken off leaves the long way open, as on an object.
"""

from __future__ import annotations

from typing import Any

import redis

from cacheupdater_client.observe import give_way

# redis-py's classes have a metaclass of their own; whatever can be mixed with them can be mixed with ours
_Base: Any = type(redis.Redis)


class Patchable(_Base):  # type: ignore[misc]  # redis-py's, which is known at run time only
    """The class of our clients' classes."""

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, value)
        if name == "execute_command":
            quick = next(each for each in self.__mro__ if "_long_way" in vars(each))
            give_way(self, quick, patched=True)
