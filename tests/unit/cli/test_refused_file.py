"""What an operator's commands do with a file that `check` refuses: they use the sections that they need, and say so once."""

from __future__ import annotations

import json

import pytest
from suite.commands import put

from cacheupdater.cli import asking, freshness, main
from cacheupdater.errors import Unavailable
from cacheupdater_client.protocol.wire import CHANGE, encode_pack

FILE = """\
version: 1
queue: {url: "sqlite:///FOLDER/hints.db?partitions=1"}
cache: {url: "redis://127.0.0.1:1/0"}
admin: {listen: "127.0.0.1:9464", token_file: "FOLDER/token"}
sources: {main: {budget: 500/s}}
namespaces:
  banner: {key: "banner:{slot}", load: {source: main, python: "shop:banners"}, ttl: soon}
  review: {key: "review:{slot}", load: {source: main, python: "shop:reviews"}}
"""
TOKEN = "an-operators-token-of-some-length"
MENDED = ("ttl: soon", "ttl: 5m")
MISTAKE = "shop.yaml:7:85: namespaces.banner.ttl: "
DECLARED = {
    "namespace": "banner",
    "pattern": "banner:{slot}",
    "fits": True,
    "spelled": True,
    "captures": {"slot": "home"},
    "source": "main",
    "statement": "the function shop:banners",
    "encoding": "json",
    "form": "json",
    "foreign": "keep",
    "ttl": 300.0,
}
EXPLAINED = {
    "namespace": "banner",
    "declared": DECLARED,
    "accepting": True,
    "partition": 0,
    "partitions": 1,
    "owner": "this updater",
    "ours": True,
    "troubles": [],
    "paused": None,
    "left_alone": False,
    "seat": None,
    "absent": False,
    "quarantined": None,
    "open": 0,
    "full": False,
    "last": None,
    "policy": {"name": "fixed", "every": 5.0},
    "feed": None,
}
SOURCE = {
    "name": "main",
    "unit": "rows",
    "budget": 500.0,
    "used": 0.98,
    "unneeded": 0.0,
    "price": 1.0,
    "target": None,
    "reads": 1.0,
    "stale_estimated": 0.1,
    "stale_measured": None,
    "useful": None,
    "over_age": 0.0,
    "learned": 1,
    "starved": 0,
    "starved_reads": 0.0,
}
ASKED = {
    ("freshness",): ("/freshness", {"sources": [SOURCE], "warnings": [], "read_ages": []}),
    ("quarantine", "list"): ("/quarantine", {"keys": [], "total": 0}),
    ("quarantine", "list", "review"): ("/quarantine?namespace=review", {"keys": [], "total": 0}),
    ("quarantine", "retry", "banner:a"): (
        "/quarantine/retry?key=banner%3Aa",
        {"done": 1, "left": 0, "paused": 0},
    ),
    ("quarantine", "forget", "--all"): ("/quarantine/forget?all=1", {"done": 0, "left": 0}),
    ("reload",): ("/reload", {"taken": True, "said": "no change", "restart": []}),
    ("explain", "banner:home"): ("/explain?key=banner%3Ahome", EXPLAINED),
}


class Updater:
    """The running updater: what it was asked, and whether it answers."""

    def __init__(self):
        self.asked = []
        self.answers = dict(ASKED.values())

    def page(self, address, page, *, token=None, **_options):
        self.asked.append((address, page, token))
        if page not in self.answers:
            raise Unavailable(f"no updater answers at {address}; is it running?")
        return self.answers[page]


@pytest.fixture
def updater(monkeypatch):
    made = Updater()
    monkeypatch.setattr(asking, "asked", made.page)
    monkeypatch.setattr(freshness, "asked", made.page)
    return made


@pytest.fixture
def run(tmp_path, capsys):
    """(code, standard output, standard error) of a command on `FILE`, with some texts replaced."""
    (tmp_path / "token").write_text(TOKEN)

    def run(*arguments, replaced=()):
        text, file = FILE, tmp_path / "shop.yaml"
        for old, new in replaced:
            assert old in text
            text = text.replace(old, new)
        file.write_text(text.replace("FOLDER", str(tmp_path)))
        code = main([*arguments, "-c", str(file)])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


def is_note(line, sections):
    return (
        line.startswith(f"cacheupdater: the file is refused, so this command takes only {sections} from it: ")
        and MISTAKE in line
        and line.endswith("; `cacheupdater check` shows all mistakes")
    )


@pytest.mark.parametrize("words", ASKED, ids=" ".join)
def test_what_the_updater_answers_is_answered_though_the_file_is_refused(updater, run, words):
    sections = "admin and cache" if words[0] == "explain" else "admin"
    mended = run(*words, replaced=[MENDED])
    updater.asked.clear()
    code, out, err = run(*words)

    assert (code, out) == (0, mended[1])
    assert is_note(*err.splitlines(), sections)
    token = None if words[0] == "freshness" else TOKEN
    assert updater.asked == [("127.0.0.1:9464", ASKED[words][0], token)]


def test_a_variable_that_only_a_source_needs_may_be_missing(updater, run):
    url = ("sources: {main: {", 'sources: {main: {url: "postgresql+asyncpg://u:${DB_PASSWORD}@db/shop", ')
    code, out, err = run("quarantine", "list", replaced=[MENDED, url])
    assert (code, out) == (0, "no key is in quarantine\n")
    assert "sources.main.url: ${DB_PASSWORD} is not set" in err


def test_a_file_without_a_mistake_needs_no_note(updater, run):
    assert run("quarantine", "list", replaced=[MENDED])[2] == ""


@pytest.mark.parametrize(
    ("old", "new", "mistake"),
    [
        ("127.0.0.1:9464", "127.0.0.1", "admin.listen: "),
        ("token_file", "token_fiel", "admin.token_fiel: unknown key"),
        ("FOLDER/token", "FOLDER/nothing", "admin.token_file: "),
        ("127.0.0.1:9464", "127.0.0.1:${PORT}", "admin.listen: ${PORT} is not set"),
        ("admin:", "admn:", "admn: unknown key"),
        ("sources:", "admin: {listen: '127.0.0.1:1'}\nsources:", "admin: stands twice"),
        ("version: 1", "version: 2", "version: "),
        ("version: 1\n", "", "version: "),
        ("sources: {", "sources: [", "not YAML"),
    ],
)
def test_a_mistake_in_what_a_command_needs_ends_it_with_78_and_all_mistakes(updater, run, old, new, mistake):
    code, out, err = run("quarantine", "list", replaced=[(old, new)])
    assert (code, out, updater.asked) == (78, "", [])
    assert mistake in err
    assert "takes only" not in err
    assert "namespaces.banner.ttl: " in err or mistake == "not YAML"


def test_a_section_that_a_command_needs_and_the_file_lacks_is_named(updater, run):
    code, _, err = run("quarantine", "list", replaced=[("admin:", "# ")])
    assert (code, updater.asked) == (78, [])
    assert "this command needs `admin`, which the file does not have" in err
    assert "namespaces.banner.ttl: " in err


def test_a_reload_at_an_address_that_is_named_needs_no_admin(updater, run):
    """Then `admin` has nothing but the token."""
    said = ("reload", "--admin", "127.0.0.1:1")
    assert run(*said)[0] == 0
    code, _, err = run(*said, replaced=[("admin:", "# ")])
    assert (code, updater.asked) == (0, [("127.0.0.1:1", "/reload", TOKEN), ("127.0.0.1:1", "/reload", None)])
    assert err.startswith("cacheupdater: the file is refused, so this command takes nothing from it: ")
    assert run("reload", replaced=[("admin:", "# ")])[0] == 78
    assert run(*said, replaced=[("token_file", "token_fiel")])[0] == 78


def test_a_token_that_cannot_be_read_is_said_though_another_mistake_hides_it(updater, run):
    """The token is read only where the top of the file has no mistake."""
    replaced = [("FOLDER/token", "FOLDER/nothing"), ("version: 1", "version: 1\nfleeet: shop")]
    code, _, err = run("quarantine", "list", replaced=replaced)
    assert (code, updater.asked) == (78, [])
    assert "admin.token_file: " in err


def test_a_namespace_is_known_by_its_name_though_it_holds_the_mistake(updater, run):
    assert run("quarantine", "list", "baner")[:2] == (78, "")
    assert run("quarantine", "list", "baner")[2].splitlines()[-1] == (
        "cacheupdater: no namespace is called baner; there are: banner, review"
    )
    updater.answers["/quarantine?namespace=banner"] = {"keys": [], "total": 0}
    assert run("quarantine", "list", "banner")[0] == 0


@pytest.mark.parametrize(
    ("old", "new", "mistake"),
    [
        ("namespaces:", "namspaces:", "namspaces: unknown key"),
        ("namespaces:", "namespaces: {}\nnamespaces:", "namespaces: stands twice"),
        ("namespaces:", "namespaces: none\nmore:", "namespaces: must"),
    ],
)
@pytest.mark.parametrize("words", [("quarantine", "list", "product"), ("pause", "product")], ids=" ".join)
def test_a_namespace_of_a_section_that_cannot_be_read_is_not_called_unknown(
    updater, run, words, old, new, mistake
):
    code, out, err = run(*words, replaced=[(old, new)])
    assert (code, out, updater.asked) == (78, "", [])
    assert mistake in err
    assert "no namespace is called" not in err
    assert err.splitlines()[-1] == (
        "this command needs the section `namespaces`, to know whether product is one of them:"
        " mend it, or name the last good file with -c"
    )


def test_what_waits_in_the_queue_is_told(run):
    code, out, err = run("queue", "lag")
    assert (code, out) == (0, "nobody has used this queue yet\n")
    assert is_note(*err.splitlines(), "queue")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("queue:", "quue:"),
        ("partitions=1", "partitions=none"),
        ('partitions=1"', 'partitions=1", partitions: 3'),
    ],
)
def test_a_queue_that_may_be_another_is_not_looked_at(run, old, new):
    code, out, err = run("queue", "lag", replaced=[(old, new)])
    assert (code, out) == (78, "")
    assert "takes only" not in err


def test_a_purge_needs_the_namespaces_and_drops_nothing_without_them(run, tmp_path):
    """Without its namespaces every changed key would be a stranger, whose old value stays."""
    put(f"sqlite:///{tmp_path}/hints.db?partitions=1", (0, encode_pack(CHANGE, 1, [b"banner:a"])))
    code, out, err = run("queue", "purge", "--yes")
    assert (code, out) == (78, "")
    assert MISTAKE in err
    assert err.splitlines()[-1] == (
        "`queue purge` needs the whole file, to know the keys whose values it must remove:"
        " mend it, or name the last good file with -c"
    )
    assert "1 pack in 1 of 1 partition" in run("queue", "lag")[1]


def test_explain_takes_the_namespace_from_the_updater(updater, run):
    code, out, _ = run("explain", "banner:home", "-o", "json")
    said = json.loads(out)
    assert (code, said["declared"]) == (0, DECLARED)
    assert any(each.startswith("No hint of the key waits") for each in said["because"])


@pytest.mark.parametrize("old_version", [False, True])
def test_explain_without_the_updater_needs_the_namespaces(updater, run, old_version):
    if old_version:
        del updater.answers["/explain?key=banner%3Ahome"]["declared"]
    else:
        updater.answers.clear()
    code, out, err = run("explain", "banner:home")
    assert (code, out) == (78, "")
    assert err.splitlines()[-1].endswith("mend it, or name the last good file with -c")
    assert MISTAKE in err
    assert old_version or "is it running?" in err


def test_explain_that_loads_the_row_needs_the_whole_file(updater, run):
    code, out, err = run("explain", "banner:home", "--connect")
    assert (code, out, updater.asked) == (78, "", [])
    assert MISTAKE in err
    assert err.splitlines()[-1].startswith("`explain --connect` needs the whole file")


def test_a_dry_run_is_about_the_whole_file(updater, run):
    code, out, err = run("reload", "--dry-run")
    assert (code, out, updater.asked) == (78, "", [])
    assert "takes only" not in err


@pytest.mark.parametrize("words", [("pause", "banner"), ("resume", "banner"), ("invalidate", "banner:a")])
def test_redis_is_reached_by_the_cache_alone(run, words):
    """Nobody listens there: see the test of operators for a Redis that answers."""
    code, out, err = run(*words)
    assert (code, out) == (70, "")
    note, fault = err.splitlines()
    assert "takes only cache from it" in note
    assert "Redis cannot be used" in fault


@pytest.mark.parametrize("words", [("pause", "banner"), ("resume", "banner"), ("invalidate", "banner:a")])
def test_no_other_redis_is_changed_than_that_of_a_good_cache(run, words):
    code, _, err = run(*words, replaced=[("redis://", "reddis://")])
    assert code == 78
    assert "cache.url" in err
    assert "takes only" not in err


def test_a_namespace_that_the_file_does_not_name_is_not_paused(run):
    code, _, err = run("pause", "itme")
    assert (code, err.splitlines()[-1]) == (
        78,
        "cacheupdater: no namespace is called itme; there are: banner, review",
    )


def test_an_invalidation_says_that_nobody_has_looked_whose_keys_these_are(run):
    assert "it is not checked whether a namespace has these keys" in run("invalidate", "banner:a")[2]
