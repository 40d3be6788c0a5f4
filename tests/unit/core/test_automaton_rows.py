"""Every row of the automaton's table is tested: if a row is removed or changed, a random story fails.

The engine reads the table for what a hint does. The model has the rules from the design and compares each transition with the
table.
"""

from __future__ import annotations

import pytest
from automaton import rows as automaton_rows
from automaton.schedules import play

from cacheupdater.core import dedup
from cacheupdater.core.automaton import TABLE, Action, State

ENOUGH = 2_000  # stories; the rarest row is taken by one in some hundred


def _others(row):
    """What the row might tell instead: another state, or another thing that is done."""
    after, action = TABLE[row]
    states = [(each, action) for each in State if each is not after]
    return states + [(after, each) for each in Action if each is not action]


def _without(row):
    return {each: told for each, told in TABLE.items() if each != row}


def _fails(seed):
    try:
        play(seed)
    except Exception:  # noqa: BLE001  an engine that raises has failed as well
        return True
    return False


@pytest.mark.prove
@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row[0].name}-{row[1].name}")
def test_a_story_fails_where_a_row_is_missing_or_wrong(row, monkeypatch):
    for table in (_without(row), *(_without(row) | {row: each} for each in _others(row))):
        monkeypatch.setattr(automaton_rows, "TABLE", table)
        monkeypatch.setattr(dedup, "TABLE", table)
        assert any(map(_fails, range(ENOUGH))), f"no story noticed that it tells {table.get(row)}"
