"""From values to Redis: encode, then one fenced write for the unit.

Called by the partition after the load. A value that cannot be encoded fails its own key; rows that are braked are
left as they are. Answers go back to the engine in the order of the unit's keys.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from cacheupdater.core.answers import BRAKED, Answer, Result
from cacheupdater.errors import Faulty
from cacheupdater.ports import Entry

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cacheupdater.core.keyspace import Captures
    from cacheupdater.pipeline.recipe import Recipe
    from cacheupdater.ports import Observer, Value

Prepared = list[Entry | Answer]
"""Per key of the unit: what to write, or why nothing is written."""


def prepare(
    recipe: Recipe,
    keys: Sequence[bytes],
    found: Sequence[object | None],
    *,
    keep_absent: bool,
    random: Callable[[], float],
) -> Prepared:
    """Encode what was found; None is a row that is absent, which deletes unless the brake keeps it."""
    encode, ttl_ms = recipe.encode, recipe.ttl_ms
    prepared: Prepared = []
    for key, value in zip(keys, found, strict=True):
        if value is None:
            prepared.append(BRAKED if keep_absent else Entry(key, None, ttl_ms(random())))
            continue
        try:
            encoded: Value = encode(value)
        except Faulty as e:
            prepared.append(Answer(Result.FAILED, why=str(e)))
        else:
            prepared.append(Entry(key, encoded, ttl_ms(random())))
    return prepared


def matched(captures: Sequence[Captures], values: Mapping[Captures, object]) -> list[object | None]:
    """The value of each key in the order of the unit; None where there is no row."""
    return [values.get(each) for each in captures]


async def write(
    recipe: Recipe, token: int, prepared: Prepared, *, namespace: str, observer: Observer
) -> Sequence[Answer]:
    """One answer per key."""
    entries = [each for each in prepared if isinstance(each, Entry)]
    clock = asyncio.get_running_loop().time
    began = clock()
    answers = await recipe.writer.write(token, entries) if entries else ()
    observer.measure("write_seconds", clock() - began, label=namespace)
    if len(entries) == len(prepared):
        return answers
    rest = iter(answers)
    return [next(rest) if isinstance(each, Entry) else each for each in prepared]
