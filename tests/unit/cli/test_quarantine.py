"""`cacheupdater quarantine` as an operator meets it: what is printed, what is asked of the updater, and the exit code."""

from __future__ import annotations

import pytest

from cacheupdater.cli import asking, main

_CONFIG = """\
version: 1
cache: {url: "redis://127.0.0.1:1/0"}
admin: {listen: "127.0.0.1:9464"}
sources: {main: {budget: 500/s}}
namespaces: {banner: {key: "banner:{slot}", load: {source: main, python: "no_such_module:banners"}}}
"""
KEY = {"key": "banner:x\x1b", "namespace": "banner", "error": "ValueError", "since": 5.0, "left": 55.0}


@pytest.fixture
def updater(monkeypatch):
    """What it is asked, and what it answers."""

    class Updater:
        asked, answers = [], []

        def page(self, _address, page, *, token, method):
            assert token is None
            self.asked.append((method, page))
            return self.answers.pop(0)

    made = Updater()
    made.asked, made.answers = [], []
    monkeypatch.setattr(asking, "asked", made.page)
    return made


@pytest.fixture
def run(tmp_path, capsys):
    def run(*arguments):
        file = tmp_path / "shop.yaml"
        file.write_text(_CONFIG)
        code = main(["quarantine", *arguments, "-c", str(file)])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


def done(number, left=0, paused=0):
    return {"done": number, "left": left, "paused": paused}


def test_the_list_has_a_line_per_key_and_says_what_is_not_shown(updater, run):
    updater.answers = [{"keys": [KEY], "total": 3}]
    code, out, _ = run("list", "banner")

    assert (code, updater.asked) == (0, [("GET", "/quarantine?namespace=banner")])
    line, more = out.splitlines()
    assert line.startswith("banner:x")
    assert "\x1b" not in line
    assert line.endswith("banner  since 5 s, for 55 s more: ValueError")
    assert more == "and 2 more"


def test_a_key_whose_time_is_over_waits_for_its_next_hint(updater, run):
    updater.answers = [{"keys": [KEY | {"left": 0.0}], "total": 1}]
    assert "  since 5 s, until its next hint: ValueError" in run("list")[1]


def test_an_empty_list_says_so(updater, run):
    updater.answers = [{"keys": [], "total": 0}]
    assert run("list") == (0, "no key is in quarantine\n", "")


def test_each_named_key_is_changed_and_those_that_were_not_end_the_command_with_70(updater, run):
    updater.answers = [done(1), done(0), done(0, paused=1)]
    code, out, err = run("retry", "banner:a", "banner:b c", "banner:d")

    assert updater.asked == [
        ("POST", f"/quarantine/retry?key={key}") for key in ("banner%3Aa", "banner%3Ab%20c", "banner%3Ad")
    ]
    assert (code, out) == (70, "retried 1 of 3\n")
    assert "banner:b c was not retried: this updater does not have it in quarantine" in err
    assert "banner:d was not retried: its namespace is paused" in err


def test_all_of_them_take_as_many_calls_as_they_need(updater, run):
    updater.answers = [done(200, left=30), done(30)]
    assert run("forget", "--all") == (0, "forgotten 230\n", "")
    assert updater.asked == [("POST", "/quarantine/forget?all=1")] * 2


@pytest.mark.parametrize(
    "arguments", [("retry",), ("forget", "banner:a", "--all"), (), ("list", "-o", "xml")]
)
def test_a_command_without_a_sense_is_bad_usage(updater, run, arguments):
    assert run(*arguments)[0] == 2
    assert updater.asked == []


@pytest.mark.parametrize("output", ["text", "json"])
def test_a_list_of_no_namespace_is_refused_with_the_names_that_there_are(updater, run, output):
    said = "cacheupdater: no namespace is called baner; there are: banner\n"
    assert run("list", "baner", "-o", output) == (78, "", said)
    assert updater.asked == []
