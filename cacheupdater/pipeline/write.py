"""From values to Redis: encode, then one fenced write for the unit.

The partition calls these functions after the load. A value that cannot be encoded fails its own key. Some keys keep their
values: the brake says so, or the verdict. The answers go back to the engine in the order of the unit's keys.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from cacheupdater.core.answers import Answer, Result
from cacheupdater.errors import CacheUpdaterError
from cacheupdater_client.protocol.errors import Inexpressible

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cacheupdater.pipeline.recipe import Recipe
    from cacheupdater.ports import Found, Observer
    from cacheupdater_client.protocol.fence import Entries
    from cacheupdater_client.protocol.patterns import Captures

LOOK_WITHIN = 0.25  # seconds: half of what a call to Redis may take, for the write comes after it


class Prepared(NamedTuple):
    """The entries to write, in the order of the unit's keys, and the answers of the other keys, by their places."""

    entries: Entries
    left: dict[int, Answer]


def matched(captures: Sequence[Captures], values: Mapping[Captures, object]) -> list[object | None]:
    """The value of each key, in the order of the unit; None for a key without a row."""
    return list(map(values.get, captures))


async def looked_at(recipe: Recipe, keys: Sequence[bytes], *, values: bool = False) -> Sequence[Found | None]:
    """What readers of these keys find before the write; None if Redis does not say."""
    with suppress(CacheUpdaterError, TimeoutError):
        async with asyncio.timeout(LOOK_WITHIN):
            return await recipe.writer.look(keys, values=values)
    return [None] * len(keys)


async def without_value(recipe: Recipe, keys: Sequence[bytes]) -> frozenset[bytes]:
    """The keys that have no value in Redis. If Redis does not answer, a key counts as having one."""
    looks = await looked_at(recipe, keys)
    return frozenset(key for key, found in zip(keys, looks, strict=True) if found and not found.here)


def prepare(
    recipe: Recipe,
    keys: Sequence[bytes],
    found: Sequence[object | None],
    *,
    complete: bool,
    stay: Mapping[bytes, Answer],
    lot: float,
) -> Prepared:
    """Encode the values that were found. None means an absent row, whose key is deleted. Values of the keys in `stay` stay."""
    ttls = recipe.ttls_ms(len(keys), lot)
    if complete and not stay:
        with suppress(Inexpressible):  # the loop below finds the value at fault
            return Prepared(list(zip(keys, map(recipe.encode, found), ttls, strict=True)), {})
    entries, left = [], {}
    for at, (key, value, ttl_ms) in enumerate(zip(keys, found, ttls, strict=True)):
        if key in stay:
            left[at] = stay[key]
            continue
        try:
            encoded = None if value is None else recipe.encode(value)
        except Inexpressible as e:
            left[at] = Answer(Result.FAILED, why=str(e))
            continue
        entries.append((key, encoded, ttl_ms))
    return Prepared(entries, left)


async def write(
    recipe: Recipe, token: int, prepared: Prepared, *, namespace: str, observer: Observer
) -> Sequence[Answer]:
    """Write the prepared entries; one answer per key of the unit."""
    entries, left = prepared
    clock = asyncio.get_running_loop().time
    began = clock()
    answers: Sequence[Answer] = ()
    if entries:
        answers = await recipe.writer.write(token, entries, form=recipe.form, replace=recipe.replace)
    observer.measure("write_seconds", clock() - began, label=namespace)
    if not left:
        return answers
    written = iter(answers)
    return [left[at] if at in left else next(written) for at in range(len(entries) + len(left))]
