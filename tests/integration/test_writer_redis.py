"""The Redis writer on a Redis in trouble: forgotten scripts, few rights, no memory, frozen, gone, replaced."""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import threading
import time

import pytest
import redis
from suite.pace import PATIENCE_S, TRIES, soonest_of

from cacheupdater.adapters.writer_redis import RedisWriter
from cacheupdater.core.answers import ADOPTED, FOREIGN, TOO_OLD, UNCHANGED, UNSOUND, WRITTEN, Result
from cacheupdater.errors import Forbidden, Misconfigured, Unavailable
from cacheupdater.local.redis_server import RedisServer, version
from cacheupdater.ports import Entry, Found
from cacheupdater_client.protocol import fence
from cacheupdater_client.protocol.lease import Grace

TTL_MS = 60_000
ENTRY = Entry(b"ns:1", b"v", TTL_MS)
BOUND_S = 1.5  # what one call may take, whatever happens


@pytest.fixture
async def writer(patient, every_redis_url):
    made = RedisWriter(every_redis_url)
    yield made
    await made.close()


@pytest.fixture
def admin(patient, every_redis_url):
    with redis.Redis.from_url(every_redis_url) as client:
        yield client


@pytest.fixture
def own_server(every_redis_server):
    """A server of each version that a test may stop."""
    with RedisServer(every_redis_server.executable) as server:
        yield server


async def write_one(writer, entry=ENTRY):
    [answer] = await writer.write(await writer.token(), [entry])
    return answer


async def test_scripts_are_loaded_again_when_redis_forgot_them(writer, admin):
    assert await write_one(writer) == WRITTEN
    await writer.invalidate([b"ns:1"])
    admin.script_flush()
    entries = [Entry(b"ns:%d" % i, b"v", TTL_MS) for i in range(750)]
    assert await writer.write(await writer.token(), entries) == [WRITTEN] * 750
    admin.script_flush()
    await writer.invalidate([b"ns:1", b"ns:2"])
    assert admin.exists(b"ns:1", b"ns:2") == 0


RIGHTS = [
    "~ns:*",
    "~__crs:*",
    "-@all",
    "+time",
    "+evalsha",
    "+script|load",
    "+get",
    "+set",
    "+pexpire",
    "+unlink",
]
RIGHTS += ["+type", "+hgetall", "+hset", "+hdel", "+select"]


async def with_user(admin, rights, act):
    """Runs `act(writer)` as a user who has these rights and no others."""
    admin.execute_command("ACL SETUSER", "updater", "reset", "on", ">secret", *rights)
    kwargs = admin.connection_pool.connection_kwargs
    writer = RedisWriter(f"redis://updater:secret@{kwargs['host']}:{kwargs['port']}/1")
    try:
        return await act(writer)
    finally:
        await writer.close()
        admin.execute_command("ACL DELUSER", "updater")


async def test_user_with_the_documented_rights_can_do_everything(admin):
    async def act(writer):
        steps = [b"v", b"v", b"w", {b"f": b"1"}, {b"f": b"1"}, {b"g": b"1"}, None]
        answers = [await write_one(writer, Entry(b"ns:all", value, TTL_MS)) for value in steps]
        await writer.invalidate([b"ns:all"])
        return [answer.result.value for answer in answers]

    said = await with_user(admin, RIGHTS, act)
    assert said == ["written", "unchanged", "written", "foreign", "foreign", "foreign", "written"]

    async def act_hash(writer):
        steps = [{b"f": b"1"}, {b"f": b"1"}, {b"g": b"1"}, None]
        return [(await write_one(writer, Entry(b"ns:all", value, TTL_MS))).result.value for value in steps]

    assert await with_user(admin, RIGHTS, act_hash) == ["written", "unchanged", "written", "written"]


async def test_user_with_the_documented_rights_can_prolong_and_is_told_which_one_is_missing(admin):
    grace = Grace(ttl_ms=2 * TTL_MS, fail_safe_ms=1_000)

    async def act(writer):
        await write_one(writer, Entry(b"ns:1", b"v", TTL_MS))
        return await writer.prolong([b"ns:1"], grace)

    assert await with_user(admin, [*RIGHTS, "+pttl"], act) == [True]

    async def act_without(writer):
        with pytest.raises(Forbidden, match=r"(?i)permission|can't run this command"):
            await act(writer)

    await with_user(admin, RIGHTS, act_without)


async def test_a_key_that_the_user_may_not_touch_costs_its_neighbours_no_time(admin):
    async def act(writer):
        await write_one(writer, Entry(b"ns:1", b"v", TTL_MS))
        return await writer.prolong([b"no:1", b"ns:1"], Grace(2 * TTL_MS, 1_000))

    assert await with_user(admin, [*RIGHTS, "+pttl"], act) == [False, True]


async def test_user_without_a_right_to_the_floors_can_write_no_key_and_is_told_so(admin):
    async def act(writer):
        return await write_one(writer)

    answer = await with_user(admin, [right for right in RIGHTS if right != "~__crs:*"], act)
    assert answer.result is Result.FAILED
    assert "key" in answer.why


@pytest.mark.parametrize("missing", ["+set", "+time", "+evalsha", "+script|load"])
async def test_user_without_a_right_is_unavailable_and_told_so(admin, missing):
    async def act(writer):
        with pytest.raises(Unavailable, match=r"(?i)permission|can't run this command"):
            await write_one(writer)

    await with_user(admin, [right for right in RIGHTS if right != missing], act)


async def test_wrong_password_is_unavailable_and_not_told_to_anyone(admin, every_redis_server):
    writer = RedisWriter(f"redis://nobody:hunter2@127.0.0.1:{every_redis_server.port}")
    with pytest.raises(Unavailable, match=r"(?i)password") as caught:
        await writer.token()
    assert "hunter2" not in str(caught.value)
    await writer.close()


async def test_no_memory_is_unavailable_and_over_when_there_is_memory(writer, admin):
    admin.set(b"ns:gone", b"v")
    admin.config_set("maxmemory", 1)
    try:
        with pytest.raises(Unavailable, match="OOM"):
            await write_one(writer)
        assert await write_one(writer, Entry(b"ns:gone", None, TTL_MS)) == WRITTEN
        await writer.invalidate([b"ns:1"])
    finally:
        admin.config_set("maxmemory", 0)
    assert await write_one(writer) == WRITTEN


async def test_wrong_type_is_an_answer(writer, admin):
    admin.rpush(b"ns:1", b"item")
    assert await write_one(writer) == FOREIGN


KEYS = [b"no:%d" % n if n in {1, 150} else b"ns:%d" % n for n in range(250)]


async def test_keys_that_the_user_has_no_right_to_cost_their_scripts_neighbours_nothing(admin):
    """Redis refuses the whole script then, and does not say which key it was."""
    admin.select(1)  # where the user's writer writes
    admin.mset(dict.fromkeys(KEYS, b"old"))

    async def act(writer):
        token = await writer.token()
        written = await writer.write(token, [Entry(key, b"v", TTL_MS) for key in KEYS])
        removed = await writer.invalidate(KEYS)
        return written, removed

    written, removed = await with_user(admin, RIGHTS, act)
    for said in (written, removed):
        done = {ADOPTED, WRITTEN}
        refused = {key: answer for key, answer in zip(KEYS, said, strict=True) if answer not in done}
        assert [*refused] == [b"no:1", b"no:150"]
        assert {answer.result for answer in refused.values()} == {Result.FAILED}
        assert all(re.search("(?i)permissions|can't access", answer.why) for answer in refused.values())
    assert admin.exists(*KEYS) == 2


@pytest.mark.parametrize("command", ["evalsha", "unlink"])
async def test_removals_without_a_right_to_their_commands_are_forbidden(admin, command):
    """To the script, or to what it does with a key: no outage, which may be waited for without end."""

    async def act(writer):
        with pytest.raises(Forbidden, match=r"NOPERM|can't run|has no permissions"):
            await writer.invalidate([b"ns:1", b"ns:2"])

    admin.select(1)
    admin.mset({"ns:1": "old", "ns:2": "old"})
    await with_user(admin, [*RIGHTS, f"-{command}"], act)


async def test_replica_is_unavailable_until_it_is_promoted(own_server, patient):
    writer = RedisWriter(own_server.url)
    with redis.Redis.from_url(own_server.url) as client:
        before = await writer.token()
        client.replicaof("127.0.0.1", 1)
        with pytest.raises(Unavailable, match="READONLY"):
            await writer.write(before, [ENTRY])
        with pytest.raises(Unavailable, match="READONLY"):
            await writer.invalidate([b"ns:1"])
        client.config_set("replica-serve-stale-data", "no")
        with pytest.raises(Unavailable, match=r"MASTERDOWN|READONLY"):
            await write_one(writer)
        client.replicaof("NO", "ONE")
        # the connection was left, so its tokens are void
        assert await writer.write(before, [ENTRY]) == [TOO_OLD]
        assert await write_one(writer) == WRITTEN
    await writer.close()


async def test_loading_server_is_unavailable_until_it_has_loaded(every_redis_server):
    # Redis 6 looks up every 2 MiB of what it loads. That must be well within the writer's half second on a busy machine too,
    # or every call runs into its time and none hears why.
    options = ["--key-load-delay", "100"]
    if not version(every_redis_server.executable).startswith("6."):
        options += ["--enable-debug-command", "yes", "--loading-process-events-interval-bytes", "1024"]
    with RedisServer(every_redis_server.executable, options=options) as server:
        client = redis.Redis.from_url(server.url, socket_timeout=30)
        rng = random.Random(1)
        with client.pipeline(transaction=False) as pipe:
            for i in range(9_000):  # 100 us each: loads for a second
                pipe.set(b"filler:%d" % i, rng.randbytes(3_000))
            pipe.execute()
        writer = RedisWriter(server.url)
        await until_written(writer)
        for _ in range(TRIES):  # who stood still while it loaded has heard nothing of it
            reload = threading.Thread(target=client.execute_command, args=("DEBUG", "RELOAD"))
            reload.start()
            seen = await refusals_until_written(writer)
            reload.join()
            if any("loading" in text.lower() for text in seen):
                break
        assert any("loading" in text.lower() for text in seen)
        await writer.close()
        client.close()


async def refusals_until_written(writer):
    """Writes until it works; what the writer said before that. The first write may come before the loading."""
    loop = asyncio.get_running_loop()
    deadline, seen = loop.time() + 20, set()
    while loop.time() < deadline:
        try:
            await write_one(writer)
            if seen:
                break
        except Unavailable as e:
            seen.add(str(e))
        await asyncio.sleep(0.005)
    return seen


async def until_written(writer):
    async with asyncio.timeout(PATIENCE_S):
        while True:
            with contextlib.suppress(Unavailable):
                assert await write_one(writer) in {WRITTEN, UNCHANGED}
                return


async def tokens_of(writer, number):
    async with asyncio.timeout(PATIENCE_S):
        while True:
            with contextlib.suppress(Unavailable):
                return [await writer.token() for _ in range(number)]


async def test_frozen_server_holds_no_call_longer_than_its_bound_and_comes_back(own_server):
    writer, tokens = RedisWriter(own_server.url), []

    async def freeze():
        tokens[:] = await tokens_of(writer, 8)
        own_server.pause()
        began = time.monotonic()
        calls = [writer.token() for _ in range(20)]
        calls += [writer.write(token, [ENTRY]) for token in tokens]
        calls += [writer.invalidate([b"ns:1"]) for _ in range(20)]
        said = await asyncio.gather(*calls, return_exceptions=True)
        took = time.monotonic() - began
        own_server.resume()
        assert all(isinstance(each, Unavailable) or each == [TOO_OLD] for each in said)
        assert sum(isinstance(each, Unavailable) for each in said) >= 40
        await until_written(writer)
        return took

    await soonest_of(freeze, BOUND_S)
    assert await writer.write(tokens[0], [ENTRY]) == [TOO_OLD]
    await writer.close()


async def test_tokens_of_a_server_are_void_after_its_restart(own_server, patient):
    writer = RedisWriter(own_server.url)
    tokens = [await writer.token() for _ in range(8)]
    own_server.kill()
    with pytest.raises(Unavailable, match="cannot be used"):
        await writer.token()
    own_server.start()
    after = await writer.token()
    for token in tokens:
        try:
            assert await writer.write(token, [ENTRY]) == [TOO_OLD]
        except Unavailable:  # found out only now that this connection is gone
            assert await writer.write(token, [ENTRY]) == [TOO_OLD]
    with redis.Redis.from_url(own_server.url) as client:
        assert client.get(b"ns:1") is None
    assert await writer.write(after, [ENTRY]) == [WRITTEN]
    await writer.close()


async def test_connections_that_redis_closed_while_idle_are_replaced_without_a_word(writer, admin):
    await asyncio.gather(*(writer.token() for _ in range(8)))
    admin.client_kill_filter(_type="normal", skipme=True)
    for _ in range(8):
        assert await writer.token()
    admin.client_kill_filter(_type="normal", skipme=True)
    await writer.invalidate([b"ns:1"])


async def test_cancelled_calls_never_leave_their_replies_to_others(writer):
    rng = random.Random(7)

    async def one(i):
        key = b"ns:%d" % i
        for _ in range(5):
            token = await writer.token()
            assert len(str(token)) == 19
            [answer] = await writer.write(token, [Entry(key, {b"f": key}, TTL_MS)])
            assert answer.result in {Result.WRITTEN, Result.UNCHANGED, Result.TOO_OLD}

    async def cancelled(i):
        task = asyncio.ensure_future(one(i))
        await asyncio.sleep(rng.random() / 200)
        task.cancel()
        # Unavailable: the connection of its token was cancelled away
        with contextlib.suppress(asyncio.CancelledError, Unavailable):
            await task

    await asyncio.gather(*(cancelled(i) for i in range(200)))
    assert await write_one(writer, Entry(b"ns:last", b"v", TTL_MS)) == WRITTEN


async def test_token_is_given_out_once_when_two_connections_read_the_same_microsecond(writer):
    first = await writer.token()
    coming = range(first, first + 100_000_000, 1000)  # the next 100 ms, as if other sessions had read them
    writer._node._issued.update(dict.fromkeys(coming, writer._node._sessions[0]))
    assert await writer.token() not in coming


async def test_writer_works_over_a_unix_socket(patient, every_redis_server, every_redis_url):
    writer = RedisWriter(every_redis_server.unix_url)
    assert await write_one(writer) == WRITTEN
    await writer.close()


@pytest.mark.parametrize("url", ["http://x", "redis://x?db=many", "redis://x?no_such_option=1", "nonsense"])
async def test_url_that_cannot_work_is_refused_at_once(url):
    with pytest.raises(Misconfigured, match="the Redis URL cannot be used"):
        RedisWriter(url)


async def test_tls_url_speaks_tls_to_the_server(own_server):
    writer = RedisWriter(own_server.url.replace("redis://", "rediss://"))
    with pytest.raises(Unavailable):  # this server does not speak TLS, and nothing is sent to it in the clear
        await writer.token()
    await writer.close()


async def test_url_that_wants_text_for_others_does_not_matter(patient, every_redis_url):
    writer = RedisWriter(f"{every_redis_url}?decode_responses=true")
    assert await writer.write(await writer.token(), [Entry(b"k", b"v", 1000)]) == [WRITTEN]
    await writer.invalidate([b"k"])
    await writer.close()


async def test_closed_writer_is_unavailable(writer):
    token = await writer.token()
    await writer.close()
    assert await writer.write(token, [ENTRY]) == [TOO_OLD]
    for call in (writer.token(), writer.invalidate([b"k"])):
        with pytest.raises(Unavailable, match="closed"):
            await call


@pytest.mark.parametrize("floor", [b"9" * 8_000_000, b"0" * 40, b"", b"x", b"-1", [b"a list"]])
async def test_what_is_no_floor_is_neither_fetched_nor_believed(writer, admin, floor):
    """Eight million digits are no number to Python, and a reader of floors would end."""
    name = fence.floor_name(b"ns:1")
    admin.set(b"ns:1", b"v")
    admin.rpush(name, *floor) if isinstance(floor, list) else admin.set(name, floor)
    sent = admin.info("stats")["total_net_output_bytes"]
    for values in (False, True):
        assert await writer.look([b"ns:1"], values=values) == [
            Found(here=True, age=None, value=b"v" if values else None)
        ]
    assert admin.info("stats")["total_net_output_bytes"] - sent < 100_000
    assert await write_one(writer, ENTRY._replace(value=b"w")) == UNSOUND
    assert await write_one(writer) == WRITTEN


async def test_scripts_that_look_are_loaded_again_too(writer, admin):
    assert [each.here for each in await writer.look([b"ns:1"])] == [False]
    admin.script_flush()
    assert [each.here for each in await writer.look([b"ns:1"])] == [False]
