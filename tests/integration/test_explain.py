"""`cacheupdater explain KEY`: each cause is produced in a running updater, and the command names it."""

from __future__ import annotations

import re
import sqlite3
import tempfile
from pathlib import Path

import pytest
import redis
from live.explained import because, command, explained
from live.updater_process import Updaters, config, eventually

from cacheupdater_client import Redis
from cacheupdater_client.protocol import fence

pytestmark = pytest.mark.usefixtures("patient")  # the commands run in this process

HOLD = "40s"
STARVED = re.compile(
    r"The budget of source scarce pays for 2 rows a second, and \d+ keys wait for it: about [\d.]+ s for all of them\."
    r" .* `sources\.scarce\.budget` changes the rate\."
)
NAMESPACES = {
    "banner": {
        "key": "banner:{slot}",
        "load": {"python": "live.loaders:banners", "source": "code"},
        "refresh": {"every": HOLD},
        "missing": {"ttl": "40s"},
    },
    "broken": {"key": "broken:{id:int}", "load": {"python": "live.loaders:raising", "source": "code"}},
    "slow": {"key": "slow:{id:int}", "load": {"python": "live.loaders:hanging", "source": "asleep"}},
    "poor": {"key": "poor:{slot}", "load": {"python": "live.loaders:banners", "source": "poor"}},
    "note": {
        "key": "note:{id:int}",
        "load": {"sql": "SELECT id, text FROM notes WHERE id IN :id", "source": "desk"},
        "refresh": {"every": HOLD},
    },
    "twice": {"key": "twice:{id:int}:a", "load": {"python": "live.loaders:banners", "source": "code"}},
    "again": {"key": "twice:{id:int}:b", "load": {"python": "live.loaders:banners", "source": "code"}},
    "crowded": {
        "key": "crowded:{slot}",
        "load": {"python": "live.loaders:banners", "source": "poor"},
        "max_backlog": 2,
    },
    "view": {
        "key": "view:{id:int}",
        "framework": {"kind": "django", "key_prefix": "web"},
        "load": {"python": "live.loaders:banners", "source": "code"},
    },
    "starved": {
        "key": "starved:{slot}",
        "load": {"python": "live.loaders:banners", "source": "scarce"},
        "refresh": {"policy": "price", "worth": 1_000_000},
    },
    "rationed": {
        "key": "rationed:{slot}",
        "load": {"python": "live.loaders:banners", "source": "code"},
        "quota": {"rate": "2/s"},
    },
    "dear": {
        "key": "dear:{slot}",
        "load": {"python": "live.loaders:banners", "source": "code"},
        "refresh": {"policy": "price"},
    },
}
SOURCES = {
    "code": {"budget": "5000/s"},
    "asleep": {"budget": "5000/s", "statement_timeout": "1500ms"},
    "poor": {"budget": "1/h"},
    "scarce": {"budget": "2/s"},
    "desk": {"url": "sqlite+aiosqlite:////nowhere/desk.db", "budget": "5000/s"},
}


@pytest.fixture(scope="module")
def updater(session_redis_url):
    with redis.Redis.from_url(session_redis_url) as client:
        client.flushdb()
    with tempfile.TemporaryDirectory(prefix="cacheupdater-") as folder:
        started = Updaters(Path(folder))
        desk = SOURCES["desk"] | {"url": f"sqlite+aiosqlite:///{folder}/desk.db"}
        with sqlite3.connect(f"{folder}/desk.db") as database:
            database.execute("CREATE TABLE notes (id INTEGER PRIMARY KEY, text TEXT)")
            database.execute("INSERT INTO notes VALUES (7, 'call back')")
        yield started.start(config(session_redis_url, {**SOURCES, "desk": desk}, NAMESPACES))
        started.close()


@pytest.fixture
def application(updater, session_redis_url):
    with Redis.from_url(session_redis_url, emit=updater.emit) as client:
        yield client


def test_a_key_of_nobody(updater):
    assert "begins like no pattern" in because(updater, "basket:7")
    assert "The pattern that looks most like it is banner:{slot}." in because(updater, "banners:home")
    assert "does not fit its pattern" in because(updater, "broken:seven")
    assert "fits none of the patterns that begin like it" in because(updater, "twice:seven:a")


def test_a_key_as_the_views_of_a_framework_say_it(updater):
    assert "in Redis it is web:1:view:7" in because(updater, "view:7")
    _, _, why = command(updater, "invalidate", "view:7")
    assert why.endswith("In Redis it is web:1:view:7\n")


def test_a_key_that_does_not_fit_has_no_policy_though_hints_of_it_come(updater, application):
    assert "holds only ASCII" in because(updater, "basket:kött")
    for _ in range(20):
        application.get("dear:kött")
        application.get("dear:home:again")
    eventually(lambda: updater.metric("dropped_total", reason="unknown") >= 2)
    for key, reason in (("dear:kött", "holds only ASCII"), ("dear:home:again", "does not fit its pattern")):
        said = explained(updater, key)
        assert said["updater"]["policy"] is None
        [only] = said["because"]
        assert reason in only
        _, page, _ = command(updater, "explain", key)
        assert "a load is worth" not in page
        assert "loaded by" not in page


def test_a_key_whose_hints_never_came(updater):
    assert "No hint of this key has come yet" in because(updater, "dear:home")


def test_a_value_that_was_refreshed_and_is_held(updater, application):
    application.get("banner:home")
    eventually(lambda: "reads wait for its hold to be over" in because(updater, "banner:home"))
    said = explained(updater, "banner:home", "--connect")
    assert said["updater"]["last"]["result"] in {
        "written",
        "unchanged",
    }  # a slow machine asks after the next refresh
    assert said["redis"]["reads_as"] == "json"
    assert 0 <= said["redis"]["age"] < 60
    assert any("reads wait for its hold to be over" in each for each in said["because"])
    assert any("It is not old" in each for each in said["because"])
    _, page, _ = command(updater, "explain", "banner:home")
    assert "banner  banner:{slot}  slot = home" in page
    assert "the function live.loaders:banners  (source code)" in page


def test_a_statement_is_shown_with_what_is_bound_and_nothing_is_written(
    updater, application, session_redis_url
):
    application.get("note:7")  # once: a second miss that comes after the write has a refresh of its own
    with redis.Redis.from_url(session_redis_url) as client:
        eventually(lambda: client.get("note:7"))
        before = {key: client.dump(key) for key in client.keys("*note:7*")}
        said = explained(updater, "note:7", "--connect")
        assert {key: client.dump(key) for key in client.keys("*note:7*")} == before
    assert len(before) == 2, "the value and its floor"
    assert said["redis"]["size"] == len(application.get("note:7"))
    _, page, _ = command(updater, "explain", "note:7")
    assert "SELECT id, text FROM notes WHERE id IN :id" in page
    assert "id = 7" in page


def test_a_row_that_does_not_exist(updater, application):
    application.get("banner:none")
    eventually(lambda: "known to be absent" in because(updater, "banner:none"))
    assert "Its source has no such row" in because(updater, "banner:none", "--connect")


def test_a_key_that_fails_by_itself(updater, application):
    application.get("broken:13")
    eventually(lambda: "in quarantine" in because(updater, "broken:13"), within=30)
    assert "secret of key 13" not in command(updater, "explain", "broken:13")[1]


def test_a_load_that_takes_long_and_then_a_source_that_does_not_answer(updater, application):
    application.get("slow:13")
    eventually(
        lambda: "waits for its statement and its write to end" in because(updater, "slow:13"), within=30
    )
    eventually(lambda: ": load_failed: " in because(updater, "slow:13"), within=30)


def test_a_budget_that_is_spent(updater, application):
    application.get("poor:first")
    eventually(lambda: "the budget of source poor" in because(updater, "poor:first"), within=30)


def test_a_key_that_is_worth_its_row_is_told_how_long_a_starved_budget_takes(
    updater, application, session_redis_url
):
    """Misses are loaded first, so the budget has no row for what is only old. A row of the sample may go to one of these."""
    old = ["starved:one", "starved:two", "starved:three"]
    application.mget(old)
    with redis.Redis.from_url(session_redis_url) as plain:
        eventually(lambda: all(plain.mget(old)))
    application.mget([f"starved:{number}" for number in range(100)])
    eventually(lambda: STARVED.search(because(updater, "starved:99")))
    assert because(updater, "starved:99").startswith("A refresh is due since")

    def told(key):
        said = because(updater, key)
        return "A load is worth its row" in said and STARVED.search(said)

    def read():
        application.mget(old)
        return any(map(told, old))

    eventually(read, within=20)
    short = explained(updater, "starved:99")["updater"]["short"]
    assert (short["whose"], short["of"], short["rate"]) == ("budget", "scarce", 2.0)
    assert short["seconds"] == pytest.approx(short["waiting"] / 2.0, abs=1.0)


def test_a_key_is_told_how_long_a_quota_takes(updater, application):
    application.mget([f"rationed:{number}" for number in range(60)])
    wanted = "The quota of namespace rationed pays for 2 rows a second, and "
    said = eventually(lambda: text if wanted in (text := because(updater, "rationed:59")) else "")
    assert "`namespaces.rationed.quota.rate` changes the rate." in said


def test_a_hint_that_is_dropped_because_too_many_keys_wait(updater, application):
    for number in range(20):
        application.get(f"crowded:{number}")
    eventually(lambda: "dropped: hints of crowded are dropped" in because(updater, "crowded:0"), within=30)
    assert "the budget of source poor, or a quota, does not pay" in because(updater, "crowded:0")
    said = " ".join(because(updater, f"crowded:{number}") for number in range(20))
    assert "The budget of source poor pays for a row each 60 min, and " in said
    assert "Hints are dropped now (trouble `dropped`). `sources.poor.budget` changes the rate." in said


def test_a_value_that_no_updater_wrote(updater, application, session_redis_url):
    with redis.Redis.from_url(session_redis_url) as plain:
        plain.set("dear:stranger", "what is this")
    said = because(updater, "dear:stranger")
    assert "No floor stands beside the value" in said
    assert "never expires" in said
    assert "reads as text, and the namespace writes json" in said


def test_a_value_that_we_wrote_in_another_encoding_is_called_ours(updater, session_redis_url):
    with redis.Redis.from_url(session_redis_url) as plain:
        entry = (b"dear:earlier", {b"slot": b"earlier"}, 60_000)
        token = fence.token_of(*plain.time())
        args = fence.commit_args(token, [entry], form="hash")
        assert plain.eval(fence.COMMIT.text, *args) == [fence.WRITTEN]
        said = because(updater, "dear:earlier", "--connect")
        assert (
            "reads as hash, and the namespace writes json: it is ours, so its next refresh replaces it"
            in said
        )
        assert "left alone" not in said
        plain.delete("dear:earlier")
        plain.set("dear:earlier", "the application's", ex=60)
        assert "such a value is left alone" in because(updater, "dear:earlier")


def test_a_value_writes_nothing_on_the_terminal_but_its_text(updater, session_redis_url):
    with redis.Redis.from_url(session_redis_url) as plain:
        plain.set("dear:bell", "one\ntwo \x1b[2J\x07", ex=60)
    _, page, _ = command(updater, "explain", "dear:bell")
    assert r"one\ntwo \x1b[2J\x07" in page


def test_a_value_can_be_removed_by_hand(updater, application, session_redis_url):
    application.get("banner:gone")  # once: a second miss that comes late has a refresh of its own
    with redis.Redis.from_url(session_redis_url) as plain:
        eventually(lambda: plain.get("banner:gone"))
    said = f"invalidated 2 of 2 in {session_redis_url}\n"
    assert command(updater, "invalidate", "banner:gone", "banner:never") == (0, said, "")
    with redis.Redis.from_url(session_redis_url) as plain:
        assert plain.get("banner:gone") is None


@pytest.mark.parametrize("key", ["nobody:55", "broken:seven"])
def test_a_key_of_no_namespace_is_named_when_it_is_invalidated(updater, session_redis_url, key):
    with redis.Redis.from_url(session_redis_url) as plain:
        plain.set(key, "old")
        code, said, why = command(updater, "invalidate", key, "banner:never")
        assert (code, said) == (0, f"invalidated 2 of 2 in {session_redis_url}\n")
        assert why == (
            f"cacheupdater: {key} is of no namespace, so no updater fills it again:"
            " is it spelled as in Redis?\n"
        )
        assert plain.get(key) is None


def test_a_value_that_redis_does_not_remove_is_named(updaters, redis_server):
    with redis.Redis.from_url(redis_server.url) as admin:
        admin.mset({"banner:home": "old", "banner:away": "old"})
        admin.execute_command(
            "ACL", "SETUSER", "operator", "on", ">pass", "+@all", "~banner:home", "~*banner:home*"
        )
        url, shown = (redis_server.url.replace("//", f"//{user}@") for user in ("operator:pass", "***"))
        nobody = updaters.make(config(url, SOURCES, NAMESPACES))
        code, said, why = command(nobody, "invalidate", "banner:home", "banner:away")
        assert (code, said) == (70, f"invalidated 1 of 2 in {shown}\n")
        assert "banner:away was not removed: NOPERM" in why
        assert admin.mget("banner:home", "banner:away") == [None, b"old"]


def test_without_an_updater_the_rest_is_told(updaters, session_redis_url):
    nobody = updaters.make(config(session_redis_url, SOURCES, NAMESPACES))
    said = explained(nobody, "banner:home")
    assert said["updater"] is None
    assert "is it running?" in said["silence"]
    assert "No updater has answered about this key" in " ".join(said["because"])
