"""What an application has in Redis beside what would be written, field by field; for `cacheupdater check --connect`.

`contact` asks once all parts have answered. Up to 20 keys of each namespace that stand in Redis are looked for, read, and
loaded by one statement; nothing is written. A person has asked, so values are shown. What a Python loader would make of
them is not known, for calling it may cost anything: of its values only the encoding is judged.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from cacheupdater.adapters.glance_redis import Glance
from cacheupdater.config.settings import PythonLoad
from cacheupdater.core import kinds
from cacheupdater.core.verdict import ENOUGH, Sight
from cacheupdater.errors import CacheUpdaterError, Faulty, Unavailable
from cacheupdater.pipeline.judging import seen_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cacheupdater.config.settings import Config, NamespaceConfig
    from cacheupdater.pipeline.recipe import Recipe
    from cacheupdater.ports import Found
    from cacheupdater.service.parts import Parts

SEARCH_S = 1.0  # for the keys of one namespace; a large Redis may have none of them near its beginning
SHOWN_MAX = 5  # fields


class Compared(NamedTuple):
    """What is to be said of one namespace."""

    name: str
    like: bool
    what: str


async def side_by_side(config: Config, parts: Parts, names: Sequence[str]) -> Sequence[Compared]:
    """Of these namespaces, those that have values."""
    glance = Glance(config.cache.reveal())
    try:
        said = [await _one(config.namespaces[name], parts, glance) for name in names]
    finally:
        with suppress(CacheUpdaterError):
            await glance.close()
    return [each for each in said if each is not None]


async def _one(namespace: NamespaceConfig, parts: Parts, glance: Glance) -> Compared | None:
    recipe = parts.recipe(namespace.name)
    try:
        keys = await _keys(namespace, glance)
        looks = zip(keys, await recipe.writer.look(keys, values=True) if keys else (), strict=True)
        found = {key: each for key, each in looks if each is not None and each.here}
        rows = await _rows(namespace, recipe, list(found)) if found else {}
    except (Unavailable, Faulty) as e:
        return Compared(namespace.name, True, f"existing values were not compared: {e}")
    return _compared(namespace, recipe, found, rows) if found else None


async def _keys(namespace: NamespaceConfig, glance: Glance) -> Sequence[bytes]:
    """Some that stand in Redis."""
    keys: list[bytes] = []
    with suppress(TimeoutError):
        async with asyncio.timeout(SEARCH_S):
            async for key in glance.keys(namespace.pattern.prefix):
                if namespace.pattern.parse(key) is not None and key not in keys:
                    keys.append(key)
                if len(keys) >= ENOUGH:
                    break
    return keys


async def _rows(
    namespace: NamespaceConfig, recipe: Recipe, keys: Sequence[bytes]
) -> Mapping[bytes, object | None]:
    if isinstance(namespace.load, PythonLoad):
        return {}
    captures = namespace.pattern.parse_many(keys) or ()
    values = await recipe.loader.load(captures)
    return {key: values.get(each) for key, each in zip(keys, captures, strict=True)}


def _compared(
    namespace: NamespaceConfig,
    recipe: Recipe,
    found: Mapping[bytes, Found],
    rows: Mapping[bytes, object | None],
) -> Compared:
    sights = {key: seen_of(recipe, each, rows.get(key)) for key, each in found.items()}
    foreign = [key for key, seen in sights.items() if seen.sight is Sight.FOREIGN]
    if not foreign:
        return Compared(namespace.name, True, f"{len(found)} existing values are like what would be written")
    key = foreign[0]
    shown = _fields(recipe, found[key], rows.get(key)) or sights[key].why
    what = f"{len(foreign)} of {len(found)} existing values are not like ours: {key.decode(errors='replace')}: {shown}"
    return Compared(namespace.name, False, what)


def _fields(recipe: Recipe, found: Found, row: object | None) -> str:
    """Both sides of the fields that differ."""
    theirs = kinds.decoded(recipe.form, found.value)
    if theirs is None or row is None:
        return ""
    ours = kinds.decoded(recipe.form, recipe.encode(row))
    different = list(kinds.differences(theirs[0], ours[0])) if ours else []
    more = f", and {len(different) - SHOWN_MAX} more" if len(different) > SHOWN_MAX else ""
    return ", ".join(map(str, different[:SHOWN_MAX])) + more
