"""An operator's hand on running updaters: a namespace is paused for all of them and over a restart, and quarantine is worked on."""

from __future__ import annotations

import io
import json
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from types import SimpleNamespace

import pytest
from group.rows import PATTERN, SQL, VALUE, Rows
from group.story import PARTITIONS, QUICK_START, Group
from group.topic import Topic
from live.updater_process import config, eventually

from cacheupdater.cli import main
from cacheupdater_client import Redis

KEYS = [f"item:{n}" for n in range(1, 11)]
WITHIN_S = 60.0  # two cold starts on a busy machine
TOKEN = "an-operators-token-of-some-length"

# the commands run in this process: their answers are judged, not their times
pytestmark = [
    pytest.mark.live,
    pytest.mark.untimed,
    pytest.mark.timeout(240),
    pytest.mark.usefixtures("patient"),
]


@pytest.fixture
def rows(pg_url, database):
    """Items, whose loads PostgreSQL itself logs, and parts, of which some may be poison."""
    made = Rows(pg_url)
    database.execute("CREATE TABLE parts (id bigint PRIMARY KEY, divisor bigint NOT NULL)")
    database.execute("INSERT INTO parts SELECT n, 1 FROM generate_series(1, 20) n")
    return made


def settings(redis_url, pg_url):
    item = {"key": PATTERN, "load": {"source": "main", "sql": SQL}, "value": VALUE, "ttl": "1h"}
    parts = "SELECT id, 100 / divisor AS part FROM parts WHERE id IN :id"
    part = {"key": "part:{id:int}", "load": {"source": "main", "sql": parts}}
    sources = {"main": {"url": pg_url, "budget": "5000/s"}}
    return config(redis_url, sources, {"item": item, "part": part}, every="100ms")


def command(updater, *arguments):
    """(code, standard output, standard error) of a command in this process."""
    said, complaints = io.StringIO(), io.StringIO()
    with redirect_stdout(said), redirect_stderr(complaints):
        code = main([*arguments, "-c", str(updater.file)])
    return code, said.getvalue(), complaints.getvalue()


def loaded(rows):
    """How many rows of items the database has given so far."""
    return rows.loads().count


def paused(updater):
    return updater.metric("paused", namespace="item") == 1


@pytest.mark.prove
def test_a_pause_holds_for_all_updaters_and_over_a_restart_and_loses_no_change(
    redis_url, pg_url, database, rows, updaters, plain
):
    both = [updaters.start(settings(redis_url, pg_url)) for _ in range(2)]
    first = both[0]
    with ExitStack() as stack:
        clients = {each: stack.enter_context(Redis.from_url(redis_url, emit=each.emit)) for each in both}
        client = clients[first]
        eventually(lambda: None not in client.mget(KEYS))

        code, said, _ = command(first, "pause", "item")
        assert (code, "item is paused" in said) == (0, True)
        eventually(lambda: all(map(paused, both)))
        assert any("paused item: " in each for each in first.troubles)
        eventually(lambda: not first.metric("pending"))
        values, before = plain.mget(KEYS), loaded(rows)

        def reads_are_dropped(updater):
            dropped = updater.metric("dropped_total", namespace="item", reason="paused")
            eventually(
                lambda: (
                    clients[updater].mget(KEYS)
                    and updater.metric("dropped_total", namespace="item", reason="paused") > dropped
                )
            )

        for each in both:
            reads_are_dropped(each)
        client.get("part:1")
        eventually(lambda: plain.get("part:1"))
        assert (plain.mget(KEYS), loaded(rows)) == (values, before)

        first.terminate()
        assert first.wait() == 0
        first.start()
        assert paused(first) or "pauses_unread" in first.log
        eventually(lambda: paused(first))
        reads_are_dropped(first)
        assert "is paused" in command(first, "explain", "item:1")[1]

        database.execute("UPDATE items SET version = 2 WHERE id = 1")
        client.invalidate("item:1")
        for each in both:
            eventually(lambda each=each: client.get("item:1") is None and not each.metric("pending"))
            reads_are_dropped(each)
        assert plain.get("item:1") is None
        assert (plain.mget(KEYS[2:]), loaded(rows)) == (values[2:], before)

        code, said, _ = command(first, "resume", "item")
        assert (code, "item is resumed" in said) == (0, True)
        eventually(lambda: json.loads(client.get("item:1") or "{}").get("version") == 2)
        eventually(lambda: not any(map(paused, both)))
        assert loaded(rows) > before
        eventually(lambda: not any("paused item" in each for each in first.troubles))
    assert first.log.count("paused item: over") == 1


def test_a_deleted_key_is_removed_again_by_the_updater_though_its_namespace_is_paused(
    redis_url, pg_url, rows, updaters, plain
):
    updater = updaters.start(settings(redis_url, pg_url))
    with Redis.from_url(redis_url, emit=updater.emit) as client:
        client.mget(KEYS)  # once: a second miss that comes late is loaded again
        eventually(lambda: None not in plain.mget(KEYS))
        command(updater, "pause", "item")
        eventually(lambda: paused(updater) and not updater.metric("pending"))
        before = loaded(rows)
        client.delete("item:1")
        eventually(lambda: updater.metric("invalidations_total", namespace="item") > 0)
        eventually(lambda: not updater.metric("pending"))

        assert plain.get("item:1") is None
        assert loaded(rows) == before


@pytest.mark.parametrize("why", ["paused", pytest.param("quarantined", marks=pytest.mark.prove)])
def test_what_a_reader_fills_stays_while_nothing_loads_its_key(
    redis_url, pg_url, database, rows, updaters, plain, why
):
    """A SET by the application is a change, too. If each were to remove its own value, each read would ask the database."""
    database.execute("UPDATE parts SET divisor = 0 WHERE id = 7")
    updater = updaters.start(settings(redis_url, pg_url))
    with Redis.from_url(redis_url, emit=updater.emit) as client:
        client.get("part:1")
        eventually(lambda: plain.get("part:1"), WITHIN_S)  # so the namespace is ours
        if why == "paused":
            command(updater, "pause", "part")
            eventually(lambda: updater.metric("paused", namespace="part") == 1)
        client.get("part:7")
        if why == "quarantined":
            eventually(lambda: len(listed(updater)) == 1, WITHIN_S)
        fills = 0
        for _ in range(5):
            if client.get("part:7") is None:
                dropped = updater.metric("dropped_total", reason=why)
                client.set("part:7", '{"id":7,"part":7}', ex=900)
                fills += 1
                eventually(lambda before=dropped: updater.metric("dropped_total", reason=why) > before)
            eventually(lambda: not updater.metric("pending"))

        assert fills == 1
        assert json.loads(plain.get("part:7")) == {"id": 7, "part": 7}
        assert not any("foreign" in each for each in updater.troubles)

        since, dropped = client.token(), updater.metric("dropped_total", reason=why)
        assert client.write_through("part:7", '{"id":7,"part":8}', ttl=900, since=since)
        eventually(lambda: updater.metric("dropped_total", reason=why) > dropped)
        eventually(lambda: not updater.metric("pending"))
        assert json.loads(plain.get("part:7")) == {"id": 7, "part": 8}

        dropped = updater.metric("dropped_total", reason=why)
        with client.pipeline() as pipe:
            pipe.delete("part:7").set("part:7", '{"id":7,"part":9}', ex=900).execute()
        eventually(lambda: updater.metric("dropped_total", reason=why) > dropped)
        eventually(lambda: not updater.metric("pending"))
        assert json.loads(plain.get("part:7")) == {"id": 7, "part": 9}

        client.append("part:7", " ")  # nobody has put a new value there, so what stands may be old
        eventually(lambda: plain.get("part:7") is None)


def test_a_pause_of_no_namespace_or_without_redis_says_what_to_do(redis_server, updaters):
    updater = updaters.make(settings(redis_server.url, "postgresql+asyncpg://u@127.0.0.1:1/x"))

    code, _, complaint = command(updater, "pause", "itme")
    assert (code, complaint.strip()) == (
        78,
        "cacheupdater: no namespace is called itme; there are: item, part",
    )
    assert command(updater, "resume", "item")[1].strip() == "item was not paused"
    redis_server.stop()
    code, said, complaint = command(updater, "pause", "item")
    assert (code, said) == (70, "")
    assert "Redis cannot be used" in complaint


def test_a_mistake_in_one_namespace_leaves_an_operator_every_command_that_can_be_right(
    redis_url, pg_url, rows, updaters, plain
):
    updater = updaters.start(settings(redis_url, pg_url))
    with Redis.from_url(redis_url, emit=updater.emit) as client:
        client.mget(KEYS)
        eventually(lambda: None not in plain.mget(KEYS))
        good = updater.file.read_text()
        broken = json.loads(good)
        broken["namespaces"]["part"]["ttl"] = "soon"
        updater.file.write_text(json.dumps(broken))
        eventually(lambda: any("reload_refused" in each for each in updater.troubles))

        def told(*words):
            """What is printed though the file is refused; a note names the mistake."""
            code, said, complaint = command(updater, *words)
            assert (code, complaint.count("\n")) == (0, 1), complaint
            assert "namespaces.part.ttl" in complaint
            return said

        said = json.loads(told("explain", "item:1", "-o", "json"))
        assert (said["declared"]["namespace"], said["declared"]["statement"]) == ("item", SQL)
        assert said["redis"]["type"] == "string"
        assert "reload_refused" in told("explain", "item:1")
        assert "begins like no pattern" in told("explain", "nobody:1")
        assert told("quarantine", "list", "part") == "no key is in quarantine\n"
        assert command(updater, "reload")[0] == 78

        assert f"item is paused in {redis_url}; every updater of this Redis obeys" in told("pause", "item")
        eventually(lambda: paused(updater))
        assert "item is resumed" in told("resume", "item")
        eventually(lambda: not paused(updater))
        plain.set("item:2", "by hand")
        assert told("invalidate", "item:2", "item:never") == f"invalidated 2 of 2 in {redis_url}\n"
        assert plain.get("item:2") is None

        updater.terminate()
        assert updater.wait() == 0
        code, said, complaint = command(updater, "explain", "item:1")
        assert (code, said) == (78, "")
        assert "name the last good file with -c" in complaint
        updater.file.write_text(good)


def listed(updater, *arguments):
    code, said, complaint = command(updater, "quarantine", "list", "-o", "json", *arguments)
    assert code == 0, complaint
    return json.loads(said)["keys"]


def tokenless(updater):
    return {"listen": f"127.0.0.1:{updater.port}"}


def part(plain, number):
    return json.loads(plain.get(f"part:{number}") or "{}").get("part")


def test_a_poisoned_row_is_listed_with_its_error_and_retried_after_mending(
    redis_url, pg_url, database, rows, updaters, plain, tmp_path
):
    token = tmp_path / "token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    made = settings(redis_url, pg_url)
    updater = updaters.make(made)
    admin = {"listen": f"127.0.0.1:{updater.port}", "token_file": str(token)}
    updater.file.write_text(json.dumps(json.loads(updater.file.read_text()) | {"admin": admin}))
    updater.start()
    database.execute("UPDATE parts SET divisor = 0 WHERE id IN (7, 8)")
    with Redis.from_url(redis_url, emit=updater.emit) as client:
        client.mget([f"part:{n}" for n in range(1, 11)])
        eventually(lambda: len(listed(updater)) == 2, WITHIN_S)

        assert {each["key"] for each in listed(updater, "part")} == {"part:7", "part:8"}
        assert all("DivisionByZero" in each["error"] for each in listed(updater))
        assert listed(updater, "item") == []
        assert updater.page("/quarantine")[0] == 401
        assert updater.page("/configuration")[0] == updater.page("/configuration/same")[0] == 401
        assert command(updater, "reload", "--dry-run")[:2] == (0, "no change\n")
        token.write_text(TOKEN[::-1])
        assert "refuses the token in admin.token_file" in command(updater, "quarantine", "list")[2]
        token.write_text(TOKEN)
        plainly = tmp_path / "tokenless.yaml"
        plainly.write_text(json.dumps(json.loads(updater.file.read_text()) | {"admin": tokenless(updater)}))
        tells = command(SimpleNamespace(file=plainly), "quarantine", "list")[2]
        assert "wants a token: let admin.token_file name a file" in tells
        assert plain.mget("part:7", "part:8") == [None, None]

        database.execute("UPDATE parts SET divisor = 2 WHERE id IN (7, 8)")
        assert command(updater, "quarantine", "retry", "part:7")[:2] == (0, "retried 1 of 1\n")
        eventually(lambda: part(plain, 7) == 50)
        assert [each["key"] for each in listed(updater)] == ["part:8"]
        code, said, complaint = command(updater, "quarantine", "retry", "part:7")
        assert (code, said) == (70, "retried 0 of 1\n")
        assert "part:7 was not retried: this updater does not have it in quarantine" in complaint

        assert command(updater, "quarantine", "forget", "--all")[:2] == (0, "forgotten 1\n")
        assert "no key is in quarantine" in command(updater, "quarantine", "list")[1]
        assert plain.get("part:8") is None
        client.get("part:8")
        eventually(lambda: part(plain, 8) == 50)


def test_the_parent_of_workers_answers_for_all_of_them(
    tmp_path, kafka, new_topic, pg_url, redis_url, updaters
):
    group = Group(
        tmp_path,
        updaters,
        queue=Topic(kafka.bootstrap, new_topic(partitions=PARTITIONS)),
        rows=Rows(pg_url),
        redis_url=redis_url,
    )
    poison = {"source": "main", "sql": "SELECT id, 1 / (id - id) AS part FROM items WHERE id IN :id"}
    made = group.settings(load=poison, value={})
    parent = updaters.make(made, arguments=("--workers", "2"), environment=QUICK_START)
    group.members.append(parent)
    parent.start()
    keys = [f"item:{n}" for n in range(20)]
    with Redis.from_url(redis_url, emit=group.emit) as client:
        client.mget(keys)
        eventually(lambda: len(listed(parent)) == len(keys), WITHIN_S)

        assert command(parent, "pause", "item")[0] == 0
        eventually(lambda: sum(parent.metric("paused", worker=str(n)) for n in (0, 1)) == 2)
        assert command(parent, "quarantine", "forget", *keys)[1] == "forgotten 20 of 20\n"
        assert listed(parent) == []

        assert command(parent, "reload", "--dry-run")[:2] == (0, "no change\n")
        assert command(parent, "reload")[:2] == (0, "worker 0, 1: no change\n")
