"""Reads what a pickle says without loading it: plain values, and for everything else the name of its class.

A pickle may run any code when it is loaded, and a few bytes of it may take gigabytes. So this module follows the opcodes that
`pickletools` finds, and calls nothing that a pickle names. `kinds` compares the application's pickles with ours by it. A pickle that is
long, or has an opcode that no framework writes, is not read. A container that stands in a pickle twice is read once, or a
reader of the result could go on for ever. Pure; keeps nothing.
"""

from __future__ import annotations

import pickletools
import re
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

READ_MAX = 10_000
"""Bytes: no more than 10,000 opcodes, each of which takes microseconds."""
DEPTH_MAX = 100
"""Containers within each other; whoever goes through the result may do so by recursion."""
INTEGER_BITS_MAX = 1_000
"""Of an integer: to print a longer one takes long, and Python refuses some."""


class Instance:
    """An object that is no plain value: the name of the class or function that makes it."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Instance) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"a {self.name}"


class Unread(Exception):
    """The pickle is not read: it is too long, or no framework writes the like."""


def read(value: bytes) -> object:
    """What the pickle says. Raises Unread."""
    if len(value) > READ_MAX:
        raise Unread
    reading = _Reading()
    try:
        for opcode, arg, _ in pickletools.genops(value):
            reading.follow(opcode.name, arg)
        [said] = reading.stack
        _check_depth(said)
    except (ValueError, IndexError, KeyError, TypeError, UnicodeDecodeError, RecursionError) as e:
        raise Unread from e
    return said


def _check_depth(said: object) -> None:
    level = [said]
    for _ in range(DEPTH_MAX):
        inner = [
            each.values() if isinstance(each, dict) else each
            for each in level
            if isinstance(each, dict | list | tuple)
        ]
        level = [each for items in inner for each in items]
        if not level:
            return
    raise Unread


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.<>]{0,199}")
_CALLED = {("_codecs", "encode"): "bytes"}  # before protocol 3, bytes are made of text
_PASSED = frozenset({"PROTO", "FRAME", "STOP"})
_CONSTANTS: Mapping[str, object] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_NUMBERS = frozenset({"INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"})
_STRINGS = frozenset({"STRING", "BINSTRING", "SHORT_BINSTRING"})  # of Python 2
_TEXTS = frozenset({"UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"})
_BYTES = frozenset({"SHORT_BINBYTES", "BINBYTES", "BINBYTES8", "BYTEARRAY8"})
_SAID = _NUMBERS | _STRINGS | _TEXTS | _BYTES  # the opcode holds the value
_EMPTY: Mapping[str, Callable[[], object]] = {
    "EMPTY_LIST": list,
    "EMPTY_DICT": dict,
    "EMPTY_TUPLE": tuple,
    "EMPTY_SET": lambda: Instance("set"),
}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_CALLS = {"REDUCE": 2, "NEWOBJ": 2, "NEWOBJ_EX": 3}  # the callable, and so many things in all


class _Reading:
    """The machine for which a pickle is a program, without the parts that make objects."""

    def __init__(self) -> None:
        self.stack: list[object] = []
        self._marks: list[int] = []  # where the items of open containers begin
        self._memo: dict[int, object] = {}
        self._repeated = 0  # bytes that stand there again

    def follow(self, name: str, arg: object) -> None:
        stack = self.stack
        if name in _SAID:
            if isinstance(arg, int) and arg.bit_length() > INTEGER_BITS_MAX:
                raise Unread
            stack.append(arg)
        elif name == "MARK":
            self._marks.append(len(stack))
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in _EMPTY:
            stack.append(_EMPTY[name]())
        elif name in _TUPLES:
            stack.append(tuple(self._pop(_TUPLES[name])))
        elif name in _CALLS:
            stack.append(self._pop(_CALLS[name])[0])  # an instance is known by what makes it
        elif name not in _PASSED:
            _STEPS[name](self, arg)

    def _pop(self, many: int) -> list[object]:
        if many > len(self.stack) - (self._marks[-1] if self._marks else 0):
            raise Unread
        taken = self.stack[-many:]
        del self.stack[-many:]
        return taken

    def _items(self) -> list[object]:
        """What stands above the last mark."""
        at = self._marks.pop()
        items = self.stack[at:]
        del self.stack[at:]
        return items

    def keep(self, _: object) -> None:
        self._memo[len(self._memo)] = self.stack[-1]

    def keep_at(self, place: object) -> None:
        self._memo[cast("int", place)] = self.stack[-1]

    def again(self, place: object) -> None:
        kept = self._memo[cast("int", place)]
        self._repeated += len(kept) if isinstance(kept, str | bytes) else 1
        if self._repeated > READ_MAX:  # to print the same text again and again takes memory
            raise Unread
        self.stack.append(None if isinstance(kept, list | dict | tuple) else kept)

    def named(self, arg: object) -> None:
        module, _, name = cast("str", arg).partition(" ")
        self.stack.append(_instance(module, name))

    def named_above(self, _: object) -> None:
        module, name = self._pop(2)
        if not (isinstance(module, str) and isinstance(name, str)):
            raise Unread
        self.stack.append(_instance(module, name))

    def drop(self, _: object) -> None:
        self._pop(1)

    def drop_items(self, _: object) -> None:
        self._items()

    def append(self, _: object) -> None:
        self._extend(self._pop(1))

    def append_items(self, _: object) -> None:
        self._extend(self._items())

    def set_item(self, _: object) -> None:
        self._update(self._pop(2))

    def set_items(self, _: object) -> None:
        self._update(self._items())

    def list_of_items(self, _: object) -> None:
        self.stack.append(self._items())

    def tuple_of_items(self, _: object) -> None:
        self.stack.append(tuple(self._items()))

    def dict_of_items(self, _: object) -> None:
        items = self._items()
        self.stack.append({})
        self._update(items)

    def frozen_set(self, _: object) -> None:
        self._items()
        self.stack.append(Instance("frozenset"))

    def _extend(self, items: list[object]) -> None:
        if isinstance(self.stack[-1], list):  # else a class that has items of its own
            self.stack[-1] += items

    def _update(self, items: list[object]) -> None:
        if not isinstance(self.stack[-1], dict):
            return
        if not all(isinstance(each, str | bytes | int | None) for each in items[::2]):
            raise Unread
        self.stack[-1].update(zip(items[::2], items[1::2], strict=True))


def _instance(module: str, name: str) -> Instance:
    """Python's own types are called alike in all protocols. The name comes into a line of the log."""
    if not _NAME.fullmatch(f"{module}.{name}"):
        raise Unread
    own = module in {"builtins", "__builtin__"}
    return Instance(_CALLED.get((module, name), name if own else f"{module}.{name}"))


_STEPS: Mapping[str, Callable[[_Reading, object], None]] = {
    "MEMOIZE": _Reading.keep,
    "PUT": _Reading.keep_at,
    "BINPUT": _Reading.keep_at,
    "LONG_BINPUT": _Reading.keep_at,
    "GET": _Reading.again,
    "BINGET": _Reading.again,
    "LONG_BINGET": _Reading.again,
    "GLOBAL": _Reading.named,
    "STACK_GLOBAL": _Reading.named_above,
    "BUILD": _Reading.drop,
    "ADDITEMS": _Reading.drop_items,
    "APPEND": _Reading.append,
    "APPENDS": _Reading.append_items,
    "SETITEM": _Reading.set_item,
    "SETITEMS": _Reading.set_items,
    "LIST": _Reading.list_of_items,
    "TUPLE": _Reading.tuple_of_items,
    "DICT": _Reading.dict_of_items,
    "FROZENSET": _Reading.frozen_set,
}
