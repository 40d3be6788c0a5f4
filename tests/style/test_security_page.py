"""SECURITY.md names a test in each row of its tables, and each of these tests exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "SECURITY.md").read_text()
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)))
ROWS = [
    line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith(("| what", "| ---"))
]


@cache
def functions_of(file):
    tree = ast.parse((ROOT / file).read_text())
    return {each.name for each in ast.walk(tree) if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}


@pytest.mark.parametrize(("file", "test"), NAMED)
def test_a_test_that_the_page_names_is_there(file, test):
    assert test in functions_of(file)


@pytest.mark.parametrize("row", ROWS)
def test_each_row_names_its_test(row):
    assert re.search(r"`tests/[\w/]+\.py::test_\w+`", row)
    assert row.count(" | ") == 2, "who can reach it, what holds, which test"


def test_the_page_has_its_rows():
    assert len(ROWS) > 40
    assert len(NAMED) > 50
