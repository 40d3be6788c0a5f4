"""`cacheupdater reload` as an operator meets it: what is printed, what is asked of the updater, and the exit code."""

from __future__ import annotations

import asyncio
import json
import sys
from urllib.parse import parse_qsl, urlsplit

import pytest

from cacheupdater.cli import asking, main
from cacheupdater.config import load_config
from cacheupdater.service.configuration import SAME, SETTINGS, ConfigurationPages

FILE = """\
version: 1
cache: {url: "redis://user:secret@127.0.0.1:1/0"}
admin: {listen: "127.0.0.1:9464"}
sources: {main: {budget: 500/s}}
namespaces: {banner: {key: "banner:{slot}", load: {source: main, python: "shop:banners"}}}
"""
REPLACED = (
    "its values in Redis that cacheupdater wrote are replaced one by one in the new form,"
    " so the application must be able to read both forms"
)


class Updater:
    """A running updater that uses `FILE`; what it was asked, and what became of a reload."""

    def __init__(self, config):
        self._pages = ConfigurationPages(lambda: config)
        self.asked = []
        self.outcome = {}

    def page(self, address, page, *, method, **_options):
        path, query = urlsplit(page)[2:4]
        self.asked.append((address, method, path))
        if method == "POST":
            return self.outcome
        asked = {SETTINGS: self._pages.settings, SAME: self._pages.same}[path]
        return asyncio.run(asked({name: value.encode() for name, value in parse_qsl(query)}))


@pytest.fixture
def updater(monkeypatch, file):
    made = Updater(load_config(file, {}))
    monkeypatch.setattr(asking, "asked", made.page)
    return made


@pytest.fixture
def file(tmp_path, monkeypatch):
    (tmp_path / "shop.py").write_text("def banners(keys): ...\n")
    # an application of an earlier test may be called so, too
    monkeypatch.delitem(sys.modules, "shop", raising=False)
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "shop.yaml"
    file.write_text(FILE)
    return file


@pytest.fixture
def run(file, capsys):
    """(code, standard output, standard error) of a command; the file may be written anew before."""

    def run(*arguments, old="", new=""):
        file.write_text(FILE.replace(old, new) if old else FILE)
        code = main(["reload", *arguments, "-c", str(file)])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


def test_the_file_that_the_updater_has_is_no_change(updater, run):
    assert run("--dry-run") == (0, "no change\n", "")


def test_live_changes_are_listed_with_both_values(updater, run):
    code, out, _ = run(
        "--dry-run",
        old="500/s}}\nnamespaces: {",
        new='700/s}}\nnamespaces: {other: {key: "o:{id}", load: {source: main, python: "shop:banners"}}, ',
    )
    assert (code, out.splitlines()) == (
        0,
        [
            "added    namespaces.other",
            "changed  sources.main.budget: 500/s -> 700/s",
            "All of this changes while the updater runs.",
        ],
    )


def test_who_would_read_values_in_another_form_is_warned(updater, run):
    """The updater replaces its own values, and an application that cannot read the new form breaks."""
    change = {"old": '"shop:banners"}', "new": '"shop:banners"}, value: {encoding: hash}'}
    code, out, _ = run("--dry-run", **change)
    assert (code, out.splitlines()) == (
        0,
        [
            "changed  namespaces.banner.value.encoding: json -> hash",
            f"warning  namespaces.banner: {REPLACED}",
            "All of this changes while the updater runs.",
        ],
    )
    assert json.loads(run("--dry-run", "-o", "json", **change)[1])["forms"] == ["namespaces.banner"]


def test_a_changed_password_is_found_and_not_shown_and_needs_a_restart(updater, run):
    code, out, err = run("--dry-run", old="secret", new="sesame")
    assert code == 3
    assert "restart  cache: redis://***@127.0.0.1:1/0 -> redis://***@127.0.0.1:1/0  (what is hidden" in out
    assert "cache: needs a restart. A reload changes nothing" in out
    assert not {"secret", "sesame"} & set((out + err).replace(":", " ").split())


def test_a_long_text_is_cut_in_a_line_and_whole_in_json(updater, run):
    key = "x" * 200
    assert f"{'x' * 60}…" in run("--dry-run", old='"banner:', new=f'"{key}')[1]
    code, out, _ = run("--dry-run", "-o", "json", old='"banner:', new=f'"{key}')
    assert code == 0
    changed = [{"setting": "namespaces.banner.key", "was": "banner:{slot}", "now": f"{key}{{slot}}"}]
    assert json.loads(out) == {"added": [], "changed": changed, "removed": [], "restart": [], "forms": []}


def test_a_file_with_a_mistake_ends_with_78_and_asks_nobody(updater, run):
    for old, new in (("500/s", "500"), ("shop:banners", "shop:baners")):
        code, out, err = run("--dry-run", old=old, new=new)
        assert (code, out, updater.asked) == (78, "", [])
        assert "shop.yaml:" in err


def test_another_address_may_be_said_where_the_file_changes_it(updater, run):
    code, out, _ = run("--dry-run", "--admin", "127.0.0.1:9464", old="9464", new="9465")
    assert code == 3
    assert "restart  admin: 127.0.0.1:9464 -> 127.0.0.1:9465" in out
    assert {address for address, *_ in updater.asked} == {"127.0.0.1:9464"}


@pytest.mark.parametrize(
    ("taken", "restart", "code"),
    [(True, [], 0), (False, [], 78), (False, ["cache"], 3), (None, [], 70)],
)
def test_a_reload_says_what_the_updater_says_and_ends_accordingly(updater, run, taken, restart, code):
    updater.outcome = {"taken": taken, "said": "what it came to\x1b", "restart": restart}
    ended, out, err = run()
    assert ended == code
    assert updater.asked == [("127.0.0.1:9464", "POST", "/reload")]
    assert "what it came to\\x1b" in (out if taken else err)
    assert json.loads(run("-o", "json")[1]) == updater.outcome
