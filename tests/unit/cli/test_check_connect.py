"""`cacheupdater check --connect`: its table, and its exit codes. The tests with real servers are in tests/integration."""

from __future__ import annotations

import threading

import pytest

from cacheupdater.cli import main
from cacheupdater.service import connection_check
from cacheupdater.service.findings import Finding

_CONFIG = """\
version: 1
listen: ["unix://%s/hints.sock"]
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
    def connect(python="json:loads"):
        file = tmp_path / "shop.yaml"
        file.write_text(_CONFIG % (tmp_path, python))
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

    monkeypatch.setattr(connection_check, "contact", contacted)
    got, out = connect()
    assert got == code
    for each in found:
        assert each.what in out


def test_the_table_follows_the_usual_report(connect, monkeypatch):
    async def contacted(_config):
        return [OK, WRONG]

    monkeypatch.setattr(connection_check, "contact", contacted)
    _, out = connect()
    assert "Nothing was contacted" not in out
    assert out.endswith(
        "CONTACTED  NAME     IS     WHAT\n"
        "cache      -        ok     answers\n"
        "load       product  wrong  there is no such table\n"
    )


def test_redis_that_is_away_and_a_loader_that_cannot_be_imported(connect, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "connect_lacks.py").write_text("from no_such_module import banners\n")
    code, out = connect("connect_lacks:banners")
    assert code == 78
    assert "queue      -       ok     in this process" in out
    assert "cache      -       away   Redis cannot be used" in out
    assert "load       banner  wrong  cannot import 'connect_lacks:banners': ModuleNotFoundError" in out


SAID = "called with an empty list, shop_{}:banners "


@pytest.fixture
def called(connect, tmp_path, monkeypatch, request):
    """The state and the words for a loader with this body, which is called once and with nothing."""
    monkeypatch.syspath_prepend(str(tmp_path))
    calls, number = tmp_path / "calls", f"{abs(hash(request.node.name))}"
    heard = f"    with open({str(calls)!r}, 'a') as file:\n        file.write(str(slots))\n"

    def called(body, kind=""):
        (tmp_path / f"shop_{number}.py").write_text(f"{kind}def banners(slots):\n{heard}    {body}\n")
        _, out = connect(f"shop_{number}:banners")
        [line] = [line for line in out.splitlines() if line.startswith("load ")]
        assert calls.read_text() == "[]"
        _, _, state, what = line.split(maxsplit=3)
        return state, what.replace(number, "{}")

    return called


@pytest.mark.parametrize("kind", ["", "async "])
@pytest.mark.parametrize(
    ("body", "state", "told"),
    [
        ("return {}", "ok", "shop_{}:banners answers an empty list"),
        ("return 1 / len(slots)", "wrong", SAID + "raised ZeroDivisionError at"),
        ("return {'a': 1}", "wrong", SAID + "returned 1 key that it was not asked for"),
        ("return None", "wrong", SAID + "returned NoneType; a mapping"),
        ("raise ConnectionError", "away", SAID + "raised ConnectionError"),
        ("import no_such_thing", "wrong", SAID + "raised ModuleNotFoundError"),
    ],
)
def test_a_loader_is_called_once_with_an_empty_list(called, body, kind, state, told):
    found, what = called(body, kind)
    assert found == state
    assert what.startswith(told)


def test_a_loader_that_ends_its_thread_is_named(called):
    assert called("raise SystemExit(3)") == ("wrong", SAID + "ended its thread by SystemExit")


def test_a_loader_that_hangs_is_not_waited_for(called, monkeypatch):
    monkeypatch.setattr(threading, "hung_loader", threading.Event(), raising=False)
    state, what = called("import threading; threading.hung_loader.wait(30)")
    threading.hung_loader.set()
    assert (state, what) == ("away", SAID + "gave no answer within 1 s")


@pytest.mark.parametrize("ending", ["raise SystemExit(3)", "raise KeyboardInterrupt"])
def test_a_module_that_ends_its_process_is_named(connect, tmp_path, monkeypatch, ending):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / f"connect_{len(ending)}.py").write_text(f"{ending}\ndef banners(slots): ...\n")
    code, out = connect(f"connect_{len(ending)}:banners")
    assert code == 78
    assert f"by {ending.split()[1].partition('(')[0]} when it is imported" in out


def test_an_import_that_hangs_is_not_waited_for(connect, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(connection_check, "IMPORT_S", 0.05)
    monkeypatch.setattr(threading, "hung_import", threading.Event(), raising=False)
    (tmp_path / "connect_hangs.py").write_text("import threading\nbanners = threading.hung_import.wait()\n")
    code, out = connect("connect_hangs:banners")
    threading.hung_import.set()
    assert code == 78
    assert "was not imported within 0.05 s" in out
