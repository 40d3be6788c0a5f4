"""Which reads of one call are measured, and what their loads have shown: between `policy` and the samplers.

A key that was loaded a moment ago was fresh: no load need show it. For the others the next load shows whether they were
fresh: one that is under way, or one that the draw itself asks for.
"""

from __future__ import annotations

from math import isnan
from typing import TYPE_CHECKING

import numpy as np

from cacheupdater.price.table import SPACE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cacheupdater.price.index import Doubles
    from cacheupdater.price.spaces import Spaces
    from cacheupdater.price.table import Rows, Table


def drawn(
    table: Table, spaces: Spaces, rows: Rows, *, reads: Doubles, recent: NDArray[np.bool_], now: float
) -> list[int]:
    """The places in `rows` whose next load is to be measured. The `recent` were loaded just now, and are known to be fresh."""
    asked: dict[int, None] = {}
    many = len(spaces.markets) > 1
    for number, market in enumerate(spaces.markets):
        mine = np.flatnonzero(spaces.market[_space(table, rows)] == number) if many else None
        for at in market.sampler.draw(reads if mine is None else reads[mine]):
            place = at if mine is None else int(mine[at])
            key = table.keys[int(rows[place])]
            if recent[place]:
                space = int(table.state[rows[place], SPACE])
                market.sampler.known(int(spaces.within[space]), now, stale=False)
            elif key is not None:
                market.sampler.begin(key)
                asked[place] = None
    return list(asked)


def tell(table: Table, spaces: Spaces, rows: Rows, *, changed: Doubles, now: float) -> None:
    """These rows were loaded. The `changed` ones had been stale; where it is nan, nobody knows."""
    if not any(market.sampler.waits for market in spaces.markets):
        return
    spaced = _space(table, rows).tolist()
    for row, space, found in zip(rows.tolist(), spaced, changed.tolist(), strict=True):
        key = table.keys[row]
        if key is not None:
            sampler = spaces.markets[spaces.market[space]].sampler
            if isnan(found):
                sampler.forget(key)
            else:
                sampler.loaded(key, int(spaces.within[space]), now, stale=found == 1.0)


def _space(table: Table, rows: Rows) -> NDArray[np.intp]:
    return np.asarray(table.state[rows, SPACE], np.intp)
