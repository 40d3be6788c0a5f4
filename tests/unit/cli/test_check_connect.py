"""`cacheupdater check --connect`: the table, and whose turn the exit code says it is. Real servers: tests/integration."""

from __future__ import annotations

import threading

import pytest

from cacheupdater.cli import main
from cacheupdater.service import contact
from cacheupdater.service.contact import Finding

_CONFIG = """\
version: 1
cache: {url: "redis://:c4n4ry@127.0.0.1:1/0"}
sources: {main: {budget: 500/s}}
namespaces: {banner: {key: "banner:{slot}", load: {source: main, python: "%s"}}}
"""
OK = Finding("cache", "", "ok", "answers")
NOTE = Finding("queue", "", "note", "kept for ever")
AWAY = Finding("source", "main", "away", "nobody answers")
WRONG = Finding("load", "product", "wrong", "there is no such table")


@pytest.fixture
def connect(tmp_path, capsys):
    def connect(python="no_such_module:banners"):
        file = tmp_path / "shop.yaml"
        file.write_text(_CONFIG % python)
        code = main(["check", "--connect", "-c", str(file)])
        printed = capsys.readouterr()
        assert "c4n4ry" not in printed.out + printed.err
        return code, printed.out

    return connect


@pytest.mark.parametrize(
    ("found", "code"),
    [([OK], 0), ([OK, NOTE], 0), ([OK, AWAY], 70), ([AWAY, WRONG], 78), ([WRONG, OK], 78)],
)
def test_the_exit_code_says_whose_turn_it_is(connect, monkeypatch, found, code):
    async def contacted(_config):
        return found

    monkeypatch.setattr(contact, "contact", contacted)
    got, out = connect()
    assert got == code
    for each in found:
        assert each.what in out


def test_the_table_follows_the_usual_report(connect, monkeypatch):
    async def contacted(_config):
        return [OK, WRONG]

    monkeypatch.setattr(contact, "contact", contacted)
    _, out = connect()
    assert "Nothing was contacted" not in out
    assert out.endswith(
        "CONTACTED  NAME     IS     WHAT\n"
        "cache      -        ok     answers\n"
        "load       product  wrong  there is no such table\n"
    )


def test_redis_that_is_away_and_a_loader_that_is_not_there(connect):
    code, out = connect()
    assert code == 78
    assert "queue      -       ok     in this process" in out
    assert "cache      -       away   Redis cannot be used" in out
    assert "load       banner  wrong  cannot import 'no_such_module:banners'" in out


def test_a_loader_is_imported_and_not_called(connect, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "connect_loaders.py").write_text("def banners(slots):\n    raise SystemExit(3)\n")
    _, out = connect("connect_loaders:banners")
    assert "load       banner  ok    connect_loaders:banners can be imported; it was not called" in out


@pytest.mark.parametrize("ending", ["raise SystemExit(3)", "raise KeyboardInterrupt"])
def test_a_module_that_ends_its_process_is_named(connect, tmp_path, monkeypatch, ending):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / f"connect_{len(ending)}.py").write_text(ending)
    code, out = connect(f"connect_{len(ending)}:banners")
    assert code == 78
    assert f"by {ending.split()[1].partition('(')[0]} when it is imported" in out


def test_an_import_that_hangs_is_not_waited_for(connect, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(contact, "IMPORT_S", 0.05)
    monkeypatch.setattr(threading, "hung_import", threading.Event(), raising=False)
    (tmp_path / "connect_hangs.py").write_text("import threading\nthreading.hung_import.wait()\n")
    code, out = connect("connect_hangs:banners")
    threading.hung_import.set()
    assert code == 78
    assert "was not imported within 0.05 s" in out
