"""One owner per count: open hints, slots of a source, and seats are each changed in one module only.

A count that several files add to and take from is balanced by luck. These counts are changed by methods that are named after
what happened.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "cacheupdater"
RULES = sorted([*(ROOT / "core").rglob("*.py"), *(ROOT / "pipeline").rglob("*.py")])
OWNERS = {"open": "cursors.py", "taken": "slots.py", "gone": "seats.py", "leans": "cursors.py"}
SEATS = {"seats", "_seats"}
CHANGES = {"update", "pop", "popitem", "clear", "setdefault", "__setitem__", "__delitem__"}


def last_name(node):
    """`seats` of `self._dedup.seats`."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def targets(node):
    found = node.targets if isinstance(node, ast.Assign | ast.Delete) else [node.target]
    for each in found:
        yield from each.elts if isinstance(each, ast.Tuple) else [each]


def foreign_count(target, file):
    """A count of another object, changed outside its owner. An object may change its own counts."""
    return (
        isinstance(target, ast.Attribute)
        and OWNERS.get(target.attr, file) != file
        and last_name(target.value) != "self"
    )


def foreign_seat(node, file):
    """`seats[key] = unit`, `del seats[key]`, outside their owner."""
    return file != "seats.py" and isinstance(node, ast.Subscript) and last_name(node.value) in SEATS


def trespasses(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Delete):
            for target in targets(node):
                if foreign_count(target, path.name) or foreign_seat(target, path.name):
                    yield f"{path.name}:{node.lineno} {ast.unparse(node)}"
        elif isinstance(node, ast.Attribute) and node.attr in CHANGES and last_name(node.value) in SEATS:
            yield f"{path.name}:{node.lineno} {ast.unparse(node)}"


@pytest.mark.parametrize("path", RULES, ids=lambda path: path.name)
def test_only_its_owner_changes_a_count_a_slot_or_a_seat(path):
    assert list(trespasses(path)) == []


@pytest.mark.parametrize(
    "line",
    [
        "origin.open += 1",
        "unit.namespace.source.slots.taken -= 1",
        "unit.keys, unit.gone = keys, 0",
        "origin.leans |= True",
        "self._dedup.seats[key] = unit",
        "del seats[key]",
        "self._seats.update(more)",
        "deque(map(self.seats.__delitem__, keys))",
    ],
)
def test_the_check_finds_what_it_is_for(line, tmp_path):
    careless = tmp_path / "careless.py"
    careless.write_text(line)

    assert len(list(trespasses(careless))) == 1
