"""What an application's values have, and ours would lack: a row, a field that is always NULL, a longer life.

`side_by_side` asks about the existing values of each namespace, and reports the sentences. A value without a row is removed when
its key is read. Plain functions: they read nothing, and quote keys, but no values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from cacheupdater.core import kinds
from cacheupdater.core.mending import HIDDEN
from cacheupdater_client.protocol.errors import Inexpressible

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from cacheupdater.pipeline.recipe import Recipe
    from cacheupdater.ports import Value

LONGER = 1.1
"""A life that is so many times our ttl is longer for certain: neither rounding nor jitter makes it so."""

CERTAIN = 3
"""So many values without a single row, or without a single content of a field, are no chance."""


def rows(keys: Sequence[bytes], among: int) -> tuple[Literal["note", "wrong"], str] | None:
    """The source has no row for these keys, of so many."""
    if not keys:
        return None
    what = (
        f"{len(keys)} of {among} existing values have no row and would be removed, such as {keys[0].decode()}"
    )
    return ("wrong" if len(keys) == among >= CERTAIN else "note"), f"{what}: {HIDDEN}"


def fields(recipe: Recipe, values: Iterable[tuple[Value, object | None]]) -> str:
    """Which fields have a content in the application's values, and NULL in each of ours."""
    lost: Counter[str] = Counter()
    loaded: set[str] = set()
    for theirs, row in values:
        was, becomes = _named(recipe, theirs), _named(recipe, _encoded(recipe, row))
        loaded.update(name for name, part in becomes.items() if part is not None)
        lost.update(name for name in becomes if becomes[name] is None and was.get(name) is not None)
    empty = [name for name, times in lost.items() if times >= CERTAIN and name not in loaded]
    if not empty:
        return ""
    said = ", ".join(empty)
    return (
        f"{said} would be NULL in all of the values that were compared: does the statement load that column?"
    )


def life(lives: Sequence[float | None], among: int, ttl: float) -> Iterator[str]:
    """How long the application's values live yet. None: for ever."""
    if eternal := lives.count(None):
        yield (
            f"{eternal} of {among} existing values never expire, and would get a ttl of {ttl:g} s with their first refresh:"
            " does the application load a value that has expired?"
        )
    # what is left of a life says that it was at least as long; a shorter rest may belong to an old value
    longest = max((each for each in lives if each is not None), default=0.0)
    if longest > LONGER * ttl:
        yield (
            f"existing values live for up to {longest:.0f} s more, and ours would live for {ttl:g} s: a key that is read seldom"
            " would be missed more often: is `ttl` the application's?"
        )


def _encoded(recipe: Recipe, row: object | None) -> Value:
    try:
        return None if row is None else recipe.encode(row)
    except Inexpressible:
        return None


def _named(recipe: Recipe, value: Value) -> Mapping[str, object]:
    """The fields of an object; none of anything else. Hashes have no NULL."""
    decoded = None if isinstance(value, Mapping) else kinds.decoded(recipe.form, value)
    said = kinds.opened(decoded[0]) if decoded else None
    return said if isinstance(said, dict) else {}
