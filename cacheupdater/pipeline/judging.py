"""Compares the first values of a namespace with what we would write, and says what may be done before and after the verdict.

Every partition asks `Judging` before it loads a unit, and before it writes one. For a namespace that is known to be ours this
costs one look into a mapping. Before that, the values of each unit are read from Redis, as far as they are needed. The unit is
loaded only if there is something to compare; otherwise its budget is given back. If few values of ours let us write, this goes on
until the verdict is settled.

If the first values are ours, and in another form than we would write now, this is a trouble for as long as a value lives, by the
settings of now and of before the last reload. Values of an earlier process may have been written with a longer ttl; nobody knows
that one.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from cacheupdater.core import kinds, likeness
from cacheupdater.core.answers import FOREIGN, Answer, Result
from cacheupdater.core.mending import advice, unreadable
from cacheupdater.core.verdict import ENOUGH, PATIENCE, WATCHED, Seen, Sight, Verdict
from cacheupdater_client.protocol.errors import Inexpressible

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from cacheupdater.core.kinds import Compared
    from cacheupdater.core.namespace import Namespace
    from cacheupdater.pipeline.notices import Notices
    from cacheupdater.pipeline.recipe import Recipe
    from cacheupdater.ports import Found

_STILL = "nothing is written until the configuration changes (check --connect shows them side by side)"
_BOTH = "they are replaced one by one, so the application must be able to read both (check --connect shows them side by side)"
_LATER = Answer(Result.UNDECIDED, wait=PATIENCE)
_NAMED = 3  # differing fields that a line of the log names; people read it


class Judged(NamedTuple):
    """What may be written of a unit."""

    barred: Answer | None = None  # the answer of all its keys, if nothing may be written
    stay: Mapping[bytes, Answer] = MappingProxyType({})  # the answers of keys whose values stay for now


class Judging:
    """All namespaces of a process without a settled verdict, and those that were found to be the application's."""

    def __init__(self, namespaces: Iterable[Namespace], notices: Notices) -> None:
        self._open = {each: Verdict() for each in namespaces}
        self._notices = notices
        self._reformed: dict[str, float] = {}  # namespaces whose values get another form, and until when
        # seconds that a value lives at the most, now and before the last reload
        self._lives = {each.name: each.ttl + each.fail_safe for each in self._open}
        self._lived: dict[str, float] = {}

    def follow(self, before: Judging, unchanged: Iterable[Namespace]) -> None:
        """Takes over the verdicts on namespaces whose settings have not changed. The others are judged anew."""
        self._lived = dict(before._lives)
        known = {each.name: verdict for each, verdict in before._open.items()}
        for namespace in unchanged:
            self._lived[namespace.name] = before._lived.get(namespace.name, 0.0)
            if namespace.name in before._reformed:
                self._reformed[namespace.name] = before._reformed[namespace.name]
            if namespace.name in known:
                self._open[namespace] = known[namespace.name]
            else:
                self._open.pop(namespace, None)

    def tick(self, now: float) -> None:
        """Called about once a second."""
        for name in [name for name, until in self._reformed.items() if now >= until]:
            del self._reformed[name]
            self._notices.over("form_changed", name)

    def is_open(self, namespace: Namespace) -> bool:
        """Whether the namespace has no verdict yet, or was found to be the application's."""
        verdict = self._open.get(namespace)
        return verdict is not None and verdict.says != "ours"

    def stays(self, namespace: Namespace, key: bytes) -> bool:
        """Whether a value of the application stays for now in a namespace that seems to be ours."""
        verdict = self._open.get(namespace)
        return verdict is not None and verdict.stays(key)

    def is_watched(self, namespace: Namespace) -> bool:
        """Whether the values of the namespace are still looked at."""
        return namespace in self._open

    def is_foreign(self, namespace: Namespace) -> bool:
        """Whether the namespace's values are known to be the application's: then this process must not touch them."""
        verdict = self._open.get(namespace)
        return verdict is not None and verdict.says == "foreign"

    def awaited(self, namespaces: Iterable[Namespace]) -> None:
        """Readers wait until we have filled keys of these."""
        for each in namespaces if self._open else ():
            if each in self._open:
                self._open[each].awaited = True

    async def look(
        self, namespace: Namespace, recipe: Recipe, keys: Sequence[bytes], now: float
    ) -> Answer | Mapping[bytes, Found]:
        """Before a load: one answer for all keys if they need not be loaded, else what stands at the keys that were looked at.

        Keys without a value count as a sign only where we would write one: rows that do not exist tell nothing.
        """
        verdict = self._open.get(namespace)
        if verdict is None:
            return {}
        if verdict.says == "foreign":
            return self._refusal(namespace, verdict, recipe)
        verdict.wait(now)
        found = await _found(recipe, keys)
        here = [key for key, each in found.items() if each.here]
        all_stay = len(here) == len(keys) and all(map(verdict.stays, here))
        if here and not all_stay:
            return found
        barred = self._given(namespace, verdict, {}, now, writing=False, recipe=recipe).barred
        return barred or (_LATER if all_stay and not verdict.settled else found)

    def judge(
        self,
        namespace: Namespace,
        recipe: Recipe,
        now: float,
        *,
        found: Mapping[bytes, Found],
        rows: Mapping[bytes, object | None],
    ) -> Judged:
        """After a load: what may be written."""
        verdict = self._open.get(namespace)
        if verdict is None:
            return _ALL
        told = {key: each for key, each in found.items() if each.here and _tells(verdict, each, now)}
        seen = {key: seen_of(recipe, each, rows.get(key)) for key, each in told.items()}
        writing = any(row is not None for row in rows.values())
        judged = self._given(namespace, verdict, seen, now, writing=writing, recipe=recipe)
        if verdict.says != "ours" or verdict.settled:
            return judged
        unseen = {key: _LATER for key in rows if key not in found}
        return Judged(stay=unseen | {key: _LATER for key in seen if verdict.stays(key)})

    def _given(
        self,
        namespace: Namespace,
        verdict: Verdict,
        seen: Mapping[bytes, Seen],
        now: float,
        *,
        writing: bool,
        recipe: Recipe,
    ) -> Judged:
        verdict.saw(seen, now, writing=writing)
        if verdict.says == "foreign":
            return Judged(self._refusal(namespace, verdict, recipe))
        if verdict.says == "ours":
            if verdict.settled:
                self._open.pop(namespace, None)
            if verdict.reformed and namespace.name not in self._reformed:
                self._tell_reformed(namespace, verdict.reformed, now)
            return _ALL
        wait = verdict.wait(now)
        return Judged(Answer(Result.UNDECIDED, wait=wait)) if wait else _ALL

    def _tell_reformed(self, namespace: Namespace, what: str, now: float) -> None:
        name = namespace.name
        # not before the verdict is settled, or the verdict would tell it again
        self._reformed[name] = now + max(self._lives[name], self._lived.get(name, 0.0), WATCHED)
        self._notices.trouble("form_changed", name, f"{what}; {_BOTH}")

    def _refusal(self, namespace: Namespace, verdict: Verdict, recipe: Recipe) -> Answer:
        mended = advice(verdict.why, form=recipe.form, declared=recipe.declared)
        self._notices.trouble("foreign", namespace.name, f"{verdict.why}; {_STILL}: {mended}")
        return FOREIGN


_ALL = Judged()


async def _found(recipe: Recipe, keys: Sequence[bytes]) -> dict[bytes, Found]:
    """What stands at these keys, as far as Redis says it: at all of them, or at so many that they have enough values to settle a
    verdict. Values may be large, so they come a few at a time."""
    found: dict[bytes, Found] = {}
    for at in range(0, len(keys), ENOUGH):
        some = keys[at : at + ENOUGH]
        looks = zip(some, await recipe.writer.look(some, values=True), strict=True)
        found.update((key, each) for key, each in looks if each is not None)
        if sum(each.here for each in found.values()) >= ENOUGH:
            break
    return found


def _tells(verdict: Verdict, found: Found, now: float) -> bool:
    """Whether a value tells whose the others are. What was loaded since the first look is ours because we write: it tells nothing."""
    if verdict.says != "ours" or verdict.began is None or found.age is None:
        return True
    return found.age > now - verdict.began


def seen_of(recipe: Recipe, found: Found, row: object | None) -> Seen:
    """Whose one value is, compared with the row that we would write. The text that it gives quotes no value."""
    wrote, value = found.wrote, found.value
    if wrote is not None and (kinds.reads(recipe.form, value) or kinds.reads(wrote, value)):
        return _own(recipe, found, row)
    return likened(recipe, found, row)


def _own(recipe: Recipe, found: Found, row: object | None) -> Seen:
    """A value of ours, and how it differs from what we would write now, if it does."""
    form, value = recipe.form, found.value
    # an application may have filled its cache beside our floor: what reads in both forms is compared
    certain = form == "string" or not kinds.reads(form, value)
    if found.wrote != form and certain and found.wrote is not None and kinds.reads(found.wrote, value):
        return Seen(Sight.OWN, unreadable(form, value))
    told = {field: what for field, what in likened(recipe, found, row).told.items() if what}
    return Seen(Sight.OWN, ", ".join(list(told.values())[:_NAMED]), told)


def likened(recipe: Recipe, found: Found, row: object | None) -> Seen:
    """Whether a reader of the value could read what we would write, whoever has written it."""
    if not kinds.reads(recipe.form, found.value):
        return Seen(Sight.FOREIGN, unreadable(recipe.form, found.value))
    compared = compared_with(recipe, found, row)
    if compared is None:
        return Seen(Sight.BLANK)
    different = [each.what for each in compared if each.what]
    by_field = {each.field: each.what for each in compared if not (each.what and each.within)}
    return Seen(Sight.FOREIGN if different else Sight.LIKE, ", ".join(different[:_NAMED]), by_field)


def compared_with(recipe: Recipe, found: Found, row: object | None) -> Sequence[Compared] | None:
    """The comparison with our value, field by field; None without a row, or with a row that cannot be encoded."""
    try:
        ours = None if row is None else recipe.encode(row)
    except Inexpressible:
        ours = None
    return None if ours is None else likeness.compared(recipe.form, found.value, ours, row)
