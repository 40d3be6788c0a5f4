"""Compares an application's values in Redis with the values that would be written, for `cacheupdater check --connect`.

`connection_check.contact` calls `side_by_side` after it has tried all components. For each namespace it finds up to 20 keys
in Redis, reads them, and loads them by one statement. It writes nothing. A person reads the result, so values are shown, field
by field. A Python loader is not called, for its call may cost anything: only the encoding of its values is judged. `lacking` says
which values would be lost: their rows are not there, or one of their fields is always NULL, or they would get a ttl.

Values of ours are compared too, whoever of us wrote them: an updater replaces them after a change of the file, and the
application may still read the earlier form. That change may be meant, so such a difference is a note, and nothing is foreign.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Literal, NamedTuple

from cacheupdater.adapters.glance_redis import Glance
from cacheupdater.core import kinds
from cacheupdater.core.mending import advice
from cacheupdater.core.verdict import ENOUGH, Sight
from cacheupdater.errors import CacheUpdaterError, Faulty, Unavailable
from cacheupdater.pipeline.judging import compared_with, likened, seen_of
from cacheupdater.service import lacking
from cacheupdater.service.findings import REFUSED
from cacheupdater.service.search import Search

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cacheupdater.config.models import NamespaceSection
    from cacheupdater.config.settings import Config
    from cacheupdater.pipeline.recipe import Recipe
    from cacheupdater.ports import Found
    from cacheupdater.service.components import Components

SHOWN_MAX = 8  # fields: all of a usual row, and few enough for a line


class Compared(NamedTuple):
    """A result for one namespace."""

    name: str
    state: Literal["ok", "note", "away", "wrong"]
    what: str


class Pair(NamedTuple):
    """A value in Redis, and the row that we would write there."""

    key: bytes
    found: Found
    row: object | None


async def side_by_side(config: Config, components: Components, names: Sequence[str]) -> Sequence[Compared]:
    """Compares each of these namespaces."""
    glance = Glance(config.cache.reveal())
    search = Search(glance, config.queue, (each.pattern for each in config.namespaces.values()))
    try:
        return [each for name in names for each in await _one(config.namespaces[name], components, search)]
    finally:
        with suppress(CacheUpdaterError):
            await glance.close()


async def _one(namespace: NamespaceSection, components: Components, search: Search) -> Sequence[Compared]:
    recipe = components.recipe(namespace.name)
    try:
        met = await search.some(namespace.pattern, ENOUGH)
        keys = met.keys
        looks = zip(keys, await recipe.writer.look(keys, values=True) if keys else (), strict=True)
        found = {key: each for key, each in looks if each is not None and each.here}
    except (Unavailable, Faulty) as e:
        return [_uncompared(namespace.name, e)]
    try:
        rows = await _rows(namespace, recipe, list(found)) if found else {}
    except Unavailable as e:
        return [_uncompared(namespace.name, e)]
    except Faulty as e:
        return [Compared(namespace.name, "wrong", f"the rows of existing keys cannot be loaded: {e}")]
    if not found:
        return [Compared(namespace.name, "note", await search.astray(namespace.pattern))]
    pairs = [Pair(key, each, rows.get(key)) for key, each in found.items()]
    said = _compared(namespace, recipe, pairs)
    if all(each.found.wrote for each in pairs) and (others := await search.others_like(namespace.pattern)):
        said.append(
            Compared(namespace.name, "note", f"updaters have written all of these values, and {others}")
        )
    lives = await search.lives([each.key for each in pairs if each.found.wrote is None])
    notes = [met.misfits(namespace.pattern), *lacking.life(lives, len(found), recipe.ttl)]
    return [*said, *(Compared(namespace.name, "note", each) for each in notes if each)]


def _uncompared(name: str, error: CacheUpdaterError) -> Compared:
    """`away` if the command may compare them another time. A right that only the comparison needs is worth a note."""
    later = isinstance(error, Unavailable) and not REFUSED.search(str(error))
    return Compared(name, "away" if later else "note", f"existing values were not compared: {error}")


async def _rows(
    namespace: NamespaceSection, recipe: Recipe, keys: Sequence[bytes]
) -> Mapping[bytes, object | None]:
    if namespace.load.python:
        return {}
    captures = namespace.pattern.parse_many(keys) or ()
    values = await recipe.loader.load(captures)
    return {key: values.get(each) for key, each in zip(keys, captures, strict=True)}


def _compared(namespace: NamespaceSection, recipe: Recipe, pairs: Sequence[Pair]) -> list[Compared]:
    """A line for each way in which values differ, and one for those that are alike."""
    name, among = namespace.name, len(pairs)
    seen = [(seen_of(recipe, each.found, each.row).sight, each) for each in pairs]
    foreign = [each for sight, each in seen if sight is Sight.FOREIGN]
    ours = [each for sight, each in seen if sight is Sight.OWN]
    changed = [each for each in ours if likened(recipe, each.found, each.row).sight is Sight.FOREIGN]
    said = [_foreign(namespace, recipe, foreign, among)] if foreign else []
    said += [_changed(namespace, recipe, changed, among)] if changed else []
    if namespace.load.python:
        alike = f"{among} existing values read as {recipe.form}; the loader was not called to compare their fields"
        return said or [Compared(name, "ok", alike)]
    rowless = [
        each.key
        for sight, each in seen
        if each.row is None
        and sight is not Sight.FOREIGN
        and not kinds.says_nothing(recipe.form, each.found.value)
    ]
    if without := lacking.rows(rowless, among):
        said.append(Compared(name, *without))
    if nulls := lacking.fields(recipe, [(each.found.value, each.row) for each in pairs]):
        said.append(Compared(name, "wrong", nulls))
    similar = sum(sight is not Sight.BLANK and each.row is not None for sight, each in seen)
    if said or not similar:
        return said
    return [Compared(name, "ok", f"{similar} existing values are like what would be written")]


def _foreign(namespace: NamespaceSection, recipe: Recipe, foreign: Sequence[Pair], among: int) -> Compared:
    shown, whys = _differing(recipe, foreign)
    what = f"{len(foreign)} of {among} existing values are not like ours: {shown}"
    if namespace.value.foreign == "replace":
        return Compared(namespace.name, "note", what)
    return Compared(
        namespace.name, "wrong", f"{what}: {advice(*whys, form=recipe.form, declared=recipe.declared)}"
    )


def _changed(namespace: NamespaceSection, recipe: Recipe, ours: Sequence[Pair], among: int) -> Compared:
    shown, _ = _differing(recipe, ours)
    what = f"{len(ours)} of {among} existing values are ours, and would be written in another form"
    return Compared(namespace.name, "note", f"{what}: {shown}: can the application read that?")


def _differing(recipe: Recipe, pairs: Sequence[Pair]) -> tuple[str, Sequence[str]]:
    """Both sides of the fields in which these values differ, and the differences in words."""
    if fields := _fields(recipe, pairs):
        return _shown(fields), [each.what for _, each in fields]
    first = pairs[0]
    why = likened(recipe, first.found, first.row).why
    return f"{_word(first.key)}: {why}", [why]


def _fields(recipe: Recipe, pairs: Sequence[Pair]) -> Sequence[tuple[bytes, kinds.Compared]]:
    """Each field that differs, with the first key in which it differs."""
    first: dict[str, tuple[bytes, kinds.Compared]] = {}
    for key, found, row in pairs:
        for each in compared_with(recipe, found, row) or ():
            if each.what:
                first.setdefault(each.field, (key, each))
    return list(first.values())


def _shown(fields: Sequence[tuple[bytes, kinds.Compared]]) -> str:
    """Both values of each field, by key."""
    lines = [
        f"{_word(key)}: " + ", ".join(str(each) for _, each in some)
        for key, some in groupby(fields[:SHOWN_MAX], key=itemgetter(0))
    ]
    more = f", and {len(fields) - SHOWN_MAX} more" if len(fields) > SHOWN_MAX else ""
    return "; ".join(lines) + more


def _word(key: bytes) -> str:
    return key.decode(errors="replace")
