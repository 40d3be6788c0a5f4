"""Which parts of a statement are code: `IN :id` in a string or comment is left alone, in each database's own quotes."""

from __future__ import annotations

import pytest

from cacheupdater.core.statements import dialect_of, pieces
from cacheupdater.errors import Misconfigured

ONE = ("id",)


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
        ('SELECT "id" FROM p WHERE "id"IN :id', ["id"]),
        ("SELECT id FROM p WHERE id IN /* which */ :id", ["id"]),
    ],
)
def test_statement_is_fine(sql, captures):
    cut = pieces(sql, captures, "postgresql")
    assert sql.startswith(cut[0])
    assert sql.endswith(cut[-1])
    assert ":id" not in "".join(cut)
    assert ":keys" not in "".join(cut)


@pytest.mark.parametrize(
    ("sql", "captures", "message"),
    [
        ("SELECT 1", ["id"], "binds no capture"),
        ("SELECT 1 -- WHERE id IN :id", ["id"], "binds no capture"),
        ("SELECT 1 WHERE id IN :idd", ["id"], "did you mean :id?"),
        ("SELECT 1 WHERE id NOT IN :id", ["id"], "rows of every other key"),
        ("SELECT 1 WHERE id = :id", ["id"], "needs IN before it; write IN :id"),
        ("SELECT 1 WHERE main :id", ["id"], "needs IN before it"),
        ("SELECT 1 WHERE id IN (:id, 5)", ["id"], "needs IN before it"),
        ("SELECT 1 WHERE a IN :a AND b IN :b", ["a", "b"], "write (a, b) IN :keys"),
        ("SELECT 1 WHERE (a, b) IN :keys AND c = :c", ["a", "b"], ":c names no capture"),
        ("SELECT 1 WHERE id IN :id AND x = 'a", ["id"], "has a quote `'a` that is opened and not closed"),
        (
            "SELECT 1 /* a /* b */ WHERE id IN :id",
            ["id"],
            "has a comment `/* a /* b */ WHERE i` that is opened",
        ),
        ("SELECT $a$ x $b$ WHERE id IN :id", ["id"], "has a quote `$a$ x $b$"),
        ("SELECT id FROM p WHERE id IN :id LIMIT 5", ["id"], "has LIMIT: it loads many keys at once"),
    ],
)
def test_statement_that_cannot_load_by_key_is_refused_with_what_to_write(sql, captures, message):
    with pytest.raises(Misconfigured) as refused:
        pieces(sql, captures, "postgresql")
    assert message in str(refused.value)


EVERYWHERE = ["'IN :id'", "'it''s IN :id'", '"IN :id"', "-- IN :id\n", "/* IN :id */", "-- it's\n", '/* " */']
OWN = {
    "postgresql": [
        "/* a /* IN :id */ IN :id */",
        r"E'\' IN :id'",
        r"e'a\\' /* ' */",
        "$$ IN :id ' $$",
        "$a$ IN :id $$ $b$ $a$",
        '"a "" IN :id"',
        "U&'\\0061 IN :id'",
        "'a\\'",
        "x#y",
        "a$b$c",
    ],
    "sqlite": ["`IN :id`", "[IN :id]", "'a\\'", "[it's]", "/* /* IN :id */"],
    "mysql": [r"'\' IN :id'", r'"\" IN :id"', "`IN :id`", "# IN :id\n", "/* /* IN :id */", "5--1", "`a``b`"],
}


@pytest.mark.parametrize(
    ("dialect", "text"),
    [(dialect, text) for dialect, own in OWN.items() for text in [*EVERYWHERE, *own]],
)
def test_keys_in_a_string_a_quoted_name_or_a_comment_are_text(dialect, text):
    sql = f"SELECT id, {text} x FROM p WHERE id IN :id"
    assert pieces(sql, ONE, dialect) == [f"SELECT id, {text} x FROM p WHERE id ", ""]
    after = f"SELECT id FROM p WHERE id IN :id AND x = {text} y"
    assert pieces(after, ONE, dialect) == ["SELECT id FROM p WHERE id ", f" AND x = {text} y"]


def test_a_comment_of_mysql_that_is_code_is_code():
    with pytest.raises(Misconfigured, match=":x names no capture"):
        pieces("SELECT id FROM p WHERE id IN :id /*! AND a = :x */", ONE, "mysql")


@pytest.mark.parametrize("sign", ["'", '"', "$$", "/*", "''''", "$a$"])
def test_a_text_of_hostile_length_is_read_in_one_pass(sign):
    with pytest.raises(Misconfigured, match=r"binds no capture|not closed"):
        pieces("SELECT " + sign * 30_001, ONE, "postgresql")
    with pytest.raises(Misconfigured, match=r"binds no capture|not closed"):
        pieces("SELECT '" + "a\\" * 30_000, ONE, "mysql")


@pytest.mark.parametrize(
    ("backend", "dialect"), [("postgres", "postgresql"), ("sqlite", "sqlite"), ("mariadb", "mysql")]
)
def test_dialect_follows_the_first_word_of_the_url(backend, dialect):
    assert dialect_of(backend) == dialect
