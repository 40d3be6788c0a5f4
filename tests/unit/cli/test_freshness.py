"""`cacheupdater freshness` as an operator meets it: the table, and the message if there is none."""

from __future__ import annotations

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from cacheupdater.cli import freshness, main

_CONFIG = """\
version: 1
cache: {url: "redis://127.0.0.1:1/0"}
%s
sources: {main: {budget: 500/s}}
namespaces: {banner: {key: "banner:{slot}", load: {source: main, python: "no_such_module:banners"}}}
"""
PRODUCT = {
    "name": "product",
    "reads": 4123.4,
    "stale_estimated": 0.048,
    "stale_measured": 0.051,
    "stale_measured_low": 0.039,
    "stale_measured_high": 0.0661,
    "draws": 1204,
    "useful": 0.34,
    "over_age": 0.0,
    "learned": 20000,
    "starved": 2400,
    "starved_reads": 0.0031,
}
BASKET = PRODUCT | {"name": "basket", "stale_measured": None, "useful": None, "over_age": 2.5}
SOURCE = PRODUCT | {
    "name": "main",
    "unit": "rows",
    "budget": 500.0,
    "spent": 490.0,
    "used": 0.98,
    "unneeded": 0.004,
    "price": 0.9512,
    "target": None,
    "least_gain": 0.02,
    "gains": [
        {"least_gain": 0.0, "spent": 500.0, "stale": 0.047},
        {"least_gain": 0.02, "spent": 490.0, "stale": 0.0471},
    ],
    "namespaces": [PRODUCT, BASKET],
    "outlook": [{"stale": 0.081}, {"stale": 0.047}, {"stale": 0.0123}],
}


class Updater:
    """An admin address that answers what a test says."""

    def __init__(self):
        self.status, self.body = 200, json.dumps({"version": 1, "sources": [SOURCE]})
        self.asked = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                outer.asked.append((self.path, self.headers["Host"]))
                self.send_response(outer.status)
                self.end_headers()
                self.wfile.write(outer.body.encode())

            def log_message(self, *_):
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_port


@pytest.fixture
def updater():
    updater = Updater()
    thread = threading.Thread(target=updater.server.serve_forever, args=[0.01])
    thread.start()
    yield updater
    updater.server.shutdown()
    updater.server.server_close()
    thread.join()


@pytest.fixture
def ask(tmp_path, capsys):
    def ask(listen, *options):
        file = tmp_path / "shop.yaml"
        file.write_text(_CONFIG % (f'admin: {{listen: "{listen}"}}' if listen else ""))
        code = main(["freshness", "-c", str(file), *options])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return ask


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_the_table_shows_source_and_namespaces(updater, ask, host):
    code, out, err = ask(f"{host}:{updater.port}")
    assert (code, err) == (0, "")
    assert updater.asked == [("/freshness", f"127.0.0.1:{updater.port}")]
    assert out == (
        "SOURCE  BUDGET  USED  UNNEEDED  PRICE  TARGET  STALE AT HALF  AT BUDGET  AT TWICE\n"
        "main    500/s   98%   0.40%     0.951  -       8.1%           4.7%       1.2%\n"
        "\n"
        "           READS/S  STALE  MEASURED                         USEFUL  KEYS    STARVED  THEIR READS  OVER AGE/S\n"
        "main       4,123    4.8%   5.1% (3.9% to 6.6%, 1204 draws)  34%     20,000  2,400    0.31%        0\n"
        "  product  4,123    4.8%   5.1% (3.9% to 6.6%, 1204 draws)  34%     20,000  2,400    0.31%        0\n"
        "  basket   4,123    4.8%   -                                -       20,000  2,400    0.31%        2.5\n"
        "\n"
        "SOURCE  LEAST GAIN  WOULD SPEND  STALE\n"
        "main    0           500/s        4.7%\n"
        "main    0.02 (now)  490/s        4.7%\n"
    )


def test_database_time_and_a_target_are_shown_as_such(updater, ask):
    updater.body = json.dumps(
        {"sources": [SOURCE | {"unit": "ms", "budget": 300.0, "target": 0.99, "outlook": []}]}
    )
    _, out, _ = ask(f"127.0.0.1:{updater.port}")
    assert "main    300ms/s  98%   0.40%     0.951  99%     -              -          -" in out


WARNINGS = [
    {
        "event": "elsewhere",
        "subject": "",
        "text": "19 of 20 keys are not in our Redis",
        "seconds": 61.2,
        "times": 61,
    },
    {"event": "load_failed", "subject": "main", "text": "no answer", "seconds": 2.0, "times": 3, "worker": 1},
]
AGES = [{"name": "product", "looks": 300, "median": 1.234, "p95": 7.5}]


def test_what_is_wrong_is_said_first_and_then_how_old_values_are_when_they_are_read(updater, ask):
    updater.body = json.dumps({"sources": [SOURCE], "warnings": WARNINGS, "read_ages": AGES})
    code, out, _ = ask(f"127.0.0.1:{updater.port}")
    assert code == 0
    assert out.startswith(
        "WARNING  elsewhere for 61.2 s: 19 of 20 keys are not in our Redis\n"
        "WARNING  load_failed main (worker 1) for 2 s: no answer\n"
        "AGE WHEN READ  MEDIAN  95 % BELOW  LOOKS IN A MINUTE\n"
        "product        1.23 s  7.5 s       300\n"
        "\n"
        "SOURCE "
    )


def test_without_a_price_what_is_wrong_is_said_all_the_same(updater, ask):
    updater.body = json.dumps({"sources": [], "warnings": WARNINGS, "read_ages": AGES})
    code, out, err = ask(f"127.0.0.1:{updater.port}")
    assert code == 78
    assert "WARNING  elsewhere" in out
    assert "fixed interval" in err


def test_a_program_gets_all_that_the_updater_says_as_json(updater, ask):
    said = {
        "version": 1,
        "sources": [SOURCE],
        "warnings": WARNINGS,
        "read_ages": AGES,
        "lately": {"hints": 7},
    }
    updater.body = json.dumps(said)
    code, out, err = ask(f"127.0.0.1:{updater.port}", "-o", "json")
    assert (code, json.loads(out), err) == (0, said, "")


def test_a_program_gets_an_answer_where_there_is_no_price_too(updater, ask):
    said = {"sources": [], "warnings": WARNINGS, "read_ages": AGES}
    updater.body = json.dumps(said)
    code, out, err = ask(f"127.0.0.1:{updater.port}", "--output", "json")
    assert (code, json.loads(out), err) == (0, said, "")


def test_json_of_something_else_than_an_updater_is_no_answer(updater, ask):
    updater.body = json.dumps({"warnings": []})
    code, out, err = ask(f"127.0.0.1:{updater.port}", "-o", "json")
    assert (code, out) == (70, "")
    assert "not as an updater" in err


@pytest.fixture
def naps(monkeypatch):
    """The pauses of `--watch`. The third ends it, as Ctrl-C does."""
    naps = []

    def nap(seconds):
        naps.append(seconds)
        if len(naps) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(freshness.time, "sleep", nap)
    return naps


def test_watch_shows_it_again_until_ctrl_c(updater, ask, naps):
    code, out, _ = ask(f"127.0.0.1:{updater.port}", "--watch")
    assert (code, out.count("SOURCE  BUDGET"), naps) == (0, 3, [2.0] * 3)


@pytest.mark.usefixtures("naps")
def test_watch_prints_one_line_of_json_each_time(updater, ask):
    code, out, _ = ask(f"127.0.0.1:{updater.port}", "--watch", "-o", "json")
    assert (code, [json.loads(line) for line in out.splitlines()]) == (0, [json.loads(updater.body)] * 3)


def test_a_proxy_of_the_environment_is_not_asked(updater, ask, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert ask(f"127.0.0.1:{updater.port}")[0] == 0


@pytest.mark.parametrize(
    ("listen", "code", "why"),
    [
        ("", 78, "admin is not configured"),
        ("127.0.0.1:0", 78, "port 0"),
        ("127.0.0.1:1", 70, "no updater answers at 127.0.0.1:1 .* is it running"),
        ("[::1]:1", 70, r"no updater answers at \[::1\]:1"),
    ],
)
def test_nobody_to_ask_is_said_with_the_next_step(ask, listen, code, why):
    found, out, err = ask(listen)
    assert (found, out) == (code, "")
    assert re.search(why, err)


@pytest.mark.parametrize(
    ("status", "body", "code", "why"),
    [
        (404, "Not Found", 70, "is it the updater's admin address?"),
        (200, "hello", 70, "not as an updater"),
        (200, "[]", 70, "not as an updater"),
        (200, '{"sources": []}', 78, "fixed interval"),
    ],
)
def test_an_answer_that_is_no_table_is_said(updater, ask, status, body, code, why):
    updater.status, updater.body = status, body
    found, out, err = ask(f"127.0.0.1:{updater.port}")
    assert (found, out) == (code, "")
    assert why in err
