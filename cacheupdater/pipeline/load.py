"""One statement per unit: from captures to values.

The partition calls `load` between the token and the write. The loader has its own deadline. Its errors go to the engine, which
decides whether to wait or to cut the unit smaller.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from cacheupdater.ports import Stamped, at_once

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cacheupdater.core.outcomes import Load
    from cacheupdater.pipeline.recipe import Recipe
    from cacheupdater.ports import Leaves, Observer
    from cacheupdater_client.protocol.patterns import Captures


async def load(
    recipe: Recipe,
    captures: Sequence[Captures],
    *,
    namespace: str,
    observer: Observer,
    seen: Load,
    leaves: Leaves = at_once,
) -> Mapping[Captures, object]:
    """The value of each key that has a row. Only a complete, successful read gives values; any other raises."""
    clock = asyncio.get_running_loop().time
    began = clock()
    seen.stage = "load"
    observer.count("statements", 1, label=namespace)
    observer.count("rows", len(captures), label=namespace)
    observer.measure("unit_keys", len(captures), label=namespace)
    try:
        values = await recipe.loader.load(captures, leaves)
    finally:
        seen.seconds = clock() - began
    seen.stage = "write"
    observer.measure("load_seconds", seen.seconds, label=namespace)
    if isinstance(values, Stamped):
        seen.stamps = [values.stamps.get(key) for key in captures]
    return values
