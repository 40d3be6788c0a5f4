"""SQL that cannot work is found before any database sees it."""

from __future__ import annotations

import pytest

from cacheupdater.config.statements import statement_problem


@pytest.mark.parametrize(
    ("sql", "captures"),
    [
        ("SELECT id FROM p WHERE id IN :id", ["id"]),
        ("select id from p where id in\n  :id and x::text = 'a' and t > '12:30:00'", ["id"]),
        ("SELECT a, b FROM p WHERE (a, b) IN :keys", ["a", "b"]),
        ("SELECT id FROM p WHERE id IN :keys", ["id"]),
        ("SELECT id FROM p WHERE id IN ( :id )", ["id"]),
        (r"SELECT id, x\:y FROM p WHERE id IN :id", ["id"]),
        ("SELECT id FROM p WHERE id IN :id UNION SELECT id FROM q WHERE id IN :id", ["id"]),
    ],
)
def test_statement_is_fine(sql, captures):
    assert not statement_problem(sql, captures)


@pytest.mark.parametrize(
    ("sql", "captures", "message"),
    [
        ("SELECT 1", ["id"], "binds no capture"),
        ("SELECT 1 WHERE id IN :idd", ["id"], "did you mean :id?"),
        ("SELECT 1 WHERE id NOT IN :id", ["id"], "rows of every other key"),
        ("SELECT 1 WHERE id = :id", ["id"], "needs IN before it; write IN :id"),
        ("SELECT 1 WHERE main :id", ["id"], "needs IN before it"),
        ("SELECT 1 WHERE a IN :a AND b IN :b", ["a", "b"], "write (a, b) IN :keys"),
        ("SELECT 1 WHERE (a, b) IN :keys AND c = :c", ["a", "b"], ":c names no capture"),
    ],
)
def test_statement_problem_says_what_to_write(sql, captures, message):
    assert message in statement_problem(sql, captures)
