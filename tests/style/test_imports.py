"""No two modules need each other, not even for a type: a reader of one can stop at the names that it imports."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter

import grimp
import pytest


@pytest.fixture(scope="module")
def graph():
    return grimp.build_graph("cacheupdater", "cacheupdater_client", exclude_type_checking_imports=False)


def circle(graph):
    """The modules of one circle of imports, or nothing."""
    needs = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as e:
        return e.args[1]
    return []


def test_no_import_goes_round_in_a_circle(graph):
    assert circle(graph) == []


def test_a_circle_would_be_found(graph):
    copied = graph.__class__()
    for module in ("a", "b", "c"):
        copied.add_module(module)
    copied.add_import(importer="a", imported="b")
    copied.add_import(importer="b", imported="c")
    assert circle(copied) == []
    copied.add_import(importer="c", imported="a")
    assert sorted(set(circle(copied))) == ["a", "b", "c"]
