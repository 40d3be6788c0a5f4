"""Every input that strangers can send, as functions of bytes for the fuzzer. Each returns how it ended; it raises on a fault.

A target is made by calling its function once; the fuzzer watches the modules that this call imports. A target returns a short
text ("Malformed garbage", "200"). Without coverage, new texts steer the search.
"""

from __future__ import annotations

import asyncio
import itertools
import struct
import tempfile
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

ROOT = Path(__file__).parents[3]
RECORDS = 2_000  # of a batch: one turn takes no more


class Target(NamedTuple):
    """`make` gets a stack for what it must have closed, and returns the function that is called with each input.

    `inputs` is this target's share of a full run's million.
    """

    make: object
    samples: object
    inputs: int
    length: int = 1024  # bytes of an input, at most
    words: tuple[str, ...] = ()


def _told(error):
    return f"{type(error).__name__} {getattr(error, 'reason', '')}"


# --- what comes over a socket ---------------------------------------------------------------------------


def frames(_stack):
    """Both readers of a stream, cut into pieces as the first byte says."""
    from cacheupdater_client.protocol import wire

    def cut(data, size):
        reader, found, why = wire.FrameReader(), [], ""
        try:
            for at in range(0, len(data), size):
                found += reader.feed(data[at : at + size])
        except wire.Malformed as e:
            why = _told(e)
        assert len(reader._data) <= wire.FRAME_BYTES_MAX + size + wire.FRAME_HEAD_BYTES
        return found, why

    def run(data):
        size, data = 1 + data[0] if data else 1, data[1:]
        whole = cut(data, len(data) or 1)[1]
        assert cut(data, size)[1] == whole
        try:
            for each in wire.ReplyReader().feed(data):
                assert isinstance(each, int | wire.Hello)
            assert wire.decode_clients(data[wire.FRAME_HEAD_BYTES :]) >= 1
        except wire.Malformed as e:
            whole += _told(e)
        return whole

    return run


def frame_samples():
    from cacheupdater_client.protocol import wire

    frame = wire.encode_frame(1, wire.encode_pack(wire.TOUCH, 0, [b"p:1"]))
    replies = wire.encode_hello(wire.Hello(4, [b"p:"])) + wire.encode_ack(7)
    clients = wire.encode_clients(20)
    return [b"\x02" + frame * 3, b"\xff" + replies, b"\0" + frame[:-2], b"\x04" + clients + frame]


def packs(_stack):
    """Packs into an engine, with either policy: hints are taken in, units end, removals end, and all of it again."""
    from stories.engine import Story, namespace, token_at
    from stories.price import Desk, priced, source

    from cacheupdater.pipeline.intake import take_in
    from cacheupdater.ports import Message

    class Counts:
        """An observer that turns counts into a word."""

        def __init__(self):
            self.word = ""

        def count(self, metric, amount, *, label="", reason=""):
            self.word += f"{metric} {reason} "

    clock = itertools.count(1)
    desk = Desk(priced("p", at=source()), learned=1000)
    few = {"pending": 1000, "strangers": 1000, "absent": 1000}
    stories = [Story(namespace(), **few), Story(*desk.namespaces, policy=desk.policy, **few)]

    def run(data):
        now, observer = 0.05 * next(clock), Counts()
        for story in stories:
            story.clock.told(token_at(now), now, now)  # Redis' clock shows the story's time
            take_in(story.engine, [Message(story.offset, data)], now, observer=observer)
            story.offset += 1
            work = story.step(now)
            for unit in work.units:
                story.end(unit, now)
            if work.invalidation is not None:
                story.removed(work.invalidation, now)
            story.engine.tally.drain()
        return observer.word

    return run


def pack_samples():
    import msgspec

    from cacheupdater_client.protocol import wire

    keys = [b"p:%d" % n for n in range(20)]
    return [
        *(wire.encode_pack(kind, 1_800_000_000_000, keys, list(range(1, 21))) for kind in range(3)),
        wire.encode_pack(wire.TOUCH, 0, [b"p:1"], [2**63]),
        wire.encode_pack(wire.MISS, -(2**63), [b"p:1", b"q:1", b"\xff"]),
        wire.encode_pack(wire.TOUCH, 0, keys, tokens=[n * 10**9 for n in range(20)]),
        wire.encode_pack(wire.TOUCH, 0, [b"p:1", b"p:2"], [2, 1], tokens=[0, 2**64 - 1]),
        msgspec.msgpack.encode((1, 0, 0, [b"p:1"], [], {"tokens": [float("inf")]})),
        msgspec.msgpack.encode((1, 0, 0, ["p:1"], [], {"more": None})),
        msgspec.msgpack.encode((2, {})),
    ]


def records(_stack):
    """Batches fetched from a topic, of any format and codec. Their checksums are corrected if the first byte says so."""
    from aiokafka.record.util import calc_crc32c

    from cacheupdater.adapters.queue_kafka.batches import Torn, records, walk
    from cacheupdater.adapters.queue_kafka.codecs import Unreadable
    from cacheupdater.adapters.queue_kafka.messages import message
    from cacheupdater_client.protocol import wire

    def sound(data):
        raw = bytearray(data)
        if len(raw) > 21:
            raw[8:12] = struct.pack(">i", len(raw) - 12)
            new = raw[16] >= 2
            at, total = (17, calc_crc32c(bytes(raw[21:]))) if new else (12, crc32(raw[16:]))
            raw[at : at + 4] = struct.pack(">I", total)
        return bytes(raw)

    def read(raw):
        for batch in walk(raw):
            try:
                found, size = records(raw, batch)
                for record in itertools.islice(found, RECORDS):
                    yield kind(message(record).payload)
                yield size.bit_length()
            except (Torn, Unreadable) as e:
                yield f"{type(e).__name__} {str(e)[:30]}"

    def kind(payload):
        try:
            return wire.decode_pack(payload).kind
        except wire.Malformed as e:
            return e.reason

    def run(data):
        return str(set(read(sound(data[1:]) if data[:1] == b"\1" else data[1:])))

    return run


def record_samples():
    from brokers.batches import CODECS, of, record

    values = [
        record(0, pack_samples()[0]),
        record(1, b"", key=b"p:1", headers=[(b"a", b"b")]),
        record(2, None),
    ]
    return [b"\1" + of(values, codec) for codec in CODECS] + [b"\0" + of(values) * 2]


def requests(stack):
    """The admin address, from the bytes of a request to those of its answer."""
    from cacheupdater.adapters import admin_http
    from cacheupdater.adapters.admin_http import seats
    from cacheupdater.adapters.admin_http import server as admin_server

    async def page(*_):
        return {"said": 1}

    loop = asyncio.new_event_loop()
    stack.callback(loop.close)
    server = admin_http.AdminServer(
        "127.0.0.1:0",
        metrics=lambda _accept: (b"metric 1\n", "text/plain"),
        ready=lambda: {"queue": True},
        pages={"/freshness": page},
        keyed=admin_http.Keyed({"/explain": page}, "a-token-of-some-length"),
    )

    class Writer:
        def __init__(self):
            self.sent, self.transport = b"", self

        def set_write_buffer_limits(self, high):
            pass

        def write(self, data):
            self.sent += data

        async def drain(self):
            pass

    async def one(data):
        reader, writer = asyncio.StreamReader(limit=admin_server.HEAD_BYTES_MAX), Writer()
        reader.feed_data(data)
        reader.feed_eof()
        seat = seats.Seat(None, "")
        try:
            await server._serve(reader, writer, seat)
        except asyncio.IncompleteReadError:
            return "incomplete"
        status = writer.sent.split(b" ", 2)[1].decode()
        assert status in {"200", "400", "401", "403", "404", "405", "431"}, writer.sent
        return status

    def run(data):
        if b"/metrics" in data[:20]:
            data = data.replace(
                b"/metrics", b"/metricz", 1
            )  # it starts a thread, which costs more than all else
        return loop.run_until_complete(one(data))

    return run


def request_samples():
    lines = b"Host: localhost\r\nAuthorization: Bearer a-token-of-some-length\r\nAccept: */*\r\n\r\n"
    paths = (b"/livez", b"/readyz", b"/freshness?a=b", b"/explain?key=p%3A1&x", b"/")
    return [b"GET %s HTTP/1.1\r\n%s" % (path, lines) for path in paths] + [b"POST / HTTP/1.0\r\n\r\n"]


# --- what lies on a disk --------------------------------------------------------------------------------


def states(_stack):
    """Files of learned state, and recordings, as the first byte says. Checksums are corrected, or nothing would be read."""
    from stories.engine import namespace
    from stories.price import Desk, priced, source

    from cacheupdater.core.keyspace import Keyspace
    from cacheupdater.errors import Faulty, Misconfigured
    from cacheupdater.price import memory
    from cacheupdater.recording import recording

    def learned(body):
        told = memory.read(memory._START.pack(memory.MAGIC, 1, crc32(body)) + body, wall=2e9)
        desk = Desk(priced("p", at=source(), stamp="age"), namespace("q"), learned=100)
        keyspace = Keyspace([(each.pattern, each) for each in desk.namespaces])
        memory.restore_prices(desk.markets, told.prices)
        for part in told.learned.split(2):
            memory.restore(desk.policy, keyspace, part, moment=memory.Moment(10.0, told.absent))
        desk.read(b"p:1", at=11.0)
        desk.tick(12.0)
        return f"learned {len(told.learned.keys)}"

    def recorded(body):
        found = recording.decode(recording._HEAD + crc32(body).to_bytes(4, "big") + body)
        return f"recorded {len(found.spaces)}"

    def run(data):
        try:
            return (recorded if data[:1] == b"\1" else learned)(data[1:])
        except (Faulty, Misconfigured) as e:
            return f"{type(e).__name__} {str(e)[:40]}"

    return run


def state_samples():
    from stories.price import Desk, priced, source

    from cacheupdater.price import memory
    from cacheupdater.recording import recording

    desk = Desk(priced("p", at=source()))
    desk.read(b"p:1", b"p:2", b"p:3", at=1.0, counts=[1, 2, 3])
    part = memory.learned(memory.copy(desk.policy, 0, now=2.0))
    whole = b"".join(memory.file_of([part], memory.prices_of(desk.markets), most=100, wall=1e9))
    space = recording.Space("p", "db", 1.0, None, {1: 2}, 0, None, [recording.Watched(1, 0.0, 1.0, True)])
    minute = recording.encode(recording.Recording(60.0, [space], 0))
    return [b"\0" + whole[memory._START.size :], b"\1" + minute[len(recording._HEAD) + 4 :]]


def configurations(stack):
    """Files of configuration, as `run` and `check` read them, and the output for a valid one."""
    from cacheupdater.config import ConfigErrors, load_config

    folder = tempfile.TemporaryDirectory(prefix="cacheupdater-fuzz-", dir=_memory_folder())
    file = Path(stack.enter_context(folder)) / "fuzzed.yaml"

    def run(data):
        file.write_bytes(data)
        try:
            return repr(load_config(file, {"NAME": "value", "DEEP": "${NAME}"}))[:20]
        except ConfigErrors as e:
            return str(len(str(e).splitlines()))

    return run


def _memory_folder():
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def configuration_samples():
    found = [path.read_bytes() for path in sorted(ROOT.glob("examples/**/*updater.yaml"))]
    small = b"version: 1\ncache: {url: 'redis://h'}\nsources: {m: {budget: 1/s}}\nnamespaces: {i: {key: 'i:{n:int}', load: {source: m, python: 'a:b'}}}\n"
    return [*found, small]


# --- what stands in Redis -------------------------------------------------------------------------------


def floors(stack):
    """Floors and values that another program has written, through the scripts and the reading of their answers."""
    import redis

    from cacheupdater.local.redis_server import RedisServer
    from cacheupdater_client.protocol import fence

    server = stack.enter_context(RedisServer())
    client = stack.enter_context(redis.Redis.from_url(server.unix_url))
    commit, invalidate = (client.script_load(each.text) for each in (fence.COMMIT, fence.INVALIDATE))
    key = b"p:1"
    floor = fence.floor_name(key)

    def run(data):
        size = data[0] if data else 0
        token = fence.token_of(*client.time())
        plan = client.pipeline(transaction=False)
        plan.delete(key, floor)
        plan.set(floor, data[1 : 1 + size])
        plan.set(key, data[1 + size :]) if len(data) % 2 else plan.hset(key, "field", data[1 + size :])
        plan.evalsha(commit, *fence.commit_args(token, [(key, b'{"a":1}', 1000)], form="json"))
        plan.evalsha(invalidate, *fence.invalidate_args([key]))
        plan.evalsha(invalidate, *fence.write_through_args(key, b"{}", 1000, token))
        said = [fence.outcomes(each) for each in plan.execute()[3:]]
        for (each,) in said:
            if isinstance(each, fence.Refused):
                assert each.wait_after(token) < 3600.0
        return str([type(each).__name__ for (each,) in said])

    return run


def floor_samples():
    return [
        bytes([len(floor)]) + floor + value
        for floor in (b"", b"1800000000000000001", b"0000000000000000001800000000000000001", b"9" * 30, b"-1")
        for value in (b'{"a": 1}', b"\x81\xa1a\x01", b"")
    ]


def fleet(stack):
    """The record of a fleet after another program has written to it. A grant is a number from 0 to the wanted one."""
    import redis

    from cacheupdater.adapters.fleet_redis import RedisFleet
    from cacheupdater.core.shares import Owner
    from cacheupdater.errors import Unavailable
    from cacheupdater.local.redis_server import RedisServer
    from cacheupdater.ports import Offer

    server = stack.enter_context(RedisServer())
    client = stack.enter_context(redis.Redis.from_url(server.unix_url))
    loop = asyncio.new_event_loop()
    stack.callback(loop.close)
    member = RedisFleet(server.unix_url, "fuzz")
    stack.callback(lambda: loop.run_until_complete(member.close()))
    offer = Offer(budget=100.0, wanted=50.0, held=10.0, least=1.0, owner=Owner(1.0, 0.0))
    record = member._record("db")

    def run(data):
        name, _, entry = data.partition(b" ")
        client.delete(record)
        client.hset(record, mapping={name: entry, "born": b"1"} if data[:1] == b"o" else {name: entry})
        try:
            grant = loop.run_until_complete(member.exchange("db", offer))
        except Unavailable:
            return "unavailable"
        assert 0.0 <= grant.rate <= offer.wanted, grant
        return str(len(grant.others))

    return run


def fleet_samples():
    return [
        b"other 7 9999999999999 50 1 0 0",
        b"other 7 9999999999999 -50 1 0",
        b"other 7 9999999999999 nan nan inf 9",
        b"owner 7 1 1 x y 99999999999999999999",
        b"born soon",
    ]


# --- what clients and programs in other languages send to a collector --------------------------------------


def collected(_stack):
    """Packs and JSON lines into a collector, and out of its outbox: what leaves is a pack that an updater can read."""
    from cacheupdater.collector.gathered import Gathered
    from cacheupdater.collector.lines import BadLine, packs_of
    from cacheupdater_client.outbox import Outbox
    from cacheupdater_client.protocol.wire import Hello, decode_pack

    class Counts:
        """An observer for nobody."""

        def count(self, metric, amount, *, label="", reason=""):
            """Nobody asks."""

    gathered, left, sent = Gathered(Counts()), [], itertools.count(1)
    outbox = Outbox(settled=lambda frame, _: left.append(frame))
    outbox.greet(Hello(3, []))
    peer = gathered.newcomer()

    def run(data):
        word = str(gathered.offer(0, data, peer))
        try:
            word += str(sum(gathered.take(pack, peer) is None for pack in packs_of(data)[1]))
        except BadLine as e:
            word += str(e).partition(":")[2][:20]
        gathered.hand_over(outbox, all_kinds=True)
        while frame := outbox.next_frame(1):
            word += str(decode_pack(frame.pack).kind)
            outbox.acknowledge(next(sent))
        while left:
            gathered.settle(left[0].kind, left.pop(0).keys)
        gathered.look(outbox)
        assert not any((gathered, gathered.owes, outbox, gathered.owed(peer)))
        return word

    return run


def collected_samples():
    lines = b'{"key": "p:1", "kind": "touch", "count": 3}\n\n{"key": "p:\\u00fc", "kind": "change"}\r\n'
    return [*pack_samples(), lines, b'{"key": "p:2", "kind": "miss", "more": [null, {"a": 1e400}]}']


# --- addresses ------------------------------------------------------------------------------------------


def urls(_stack):
    """All code that reads an address or prints one."""
    from cacheupdater import masking
    from cacheupdater.config import addresses, queues
    from cacheupdater.config.fields import cache_url as cache_field
    from cacheupdater.config.fields import source_url
    from cacheupdater.config.secrets import Url
    from cacheupdater.core import cache_url
    from cacheupdater.errors import Misconfigured
    from cacheupdater_client.protocol import broker
    from cacheupdater_client.transports import link_to

    readers = (
        addresses.listen_address,
        addresses.host_port,
        queues.queue_url,
        cache_field,
        source_url,
        cache_url.parse,
        broker.parse,
        link_to,
    )
    printers = (masking.url, masking.text, masking.foreign, masking.trace, masking.line, masking.value)

    def run(data):
        text = data.decode("utf-8", "replace")
        said = []
        for reader in readers:
            try:
                reader(text)
                said.append("1")
            except (ValueError, Misconfigured):
                said.append("0")
        masking._passwords.clear()  # a process has read one file, and not thousands
        masking._users.clear()
        assert repr(Url(text)) == f"Url({str(Url(text))!r})"
        for shown in printers:
            shown(text)
        return "".join(said)

    return run


def url_samples():
    return [
        each.encode()
        for each in (
            "unix:///run/cacheupdater/hints.sock",
            "tcp://[::1]:7171",
            "memory://shop",
            "redis://user:pass@host:6379/0?ssl_ca_certs=x",
            "redis+cluster://user:pass@[::1]:1,b:2?x=y",
            "rediss+sentinel://a:1,b/main/0?sentinel_password=x&y=z",
            "redis://user:pass@host/0?stream=hints&partitions=12",
            "redis+sentinel://a:1,b/main/0?sentinel_password=x&stream=hints",
            "kafka://a:1,[::1]:2/topic?group=g&sasl=PLAIN&username=u&password_file=/x&session_timeout=10s",
            "postgresql+asyncpg://u:p%40@h:5432/db?ssl=require",
            "sqlite+aiosqlite:///x.db",
        )
    ]


# --- what lies in Debezium's topics --------------------------------------------------------------------


def events(_stack):
    """A record's value, and a deletion whose key it is, through a decoder that remembers what came before."""
    from feeds.debezium_events import event

    from cacheupdater.adapters.feed_debezium.decode import Decoder, Unread

    deletion = event("d", {"id": 1, "shelf": 0})
    decoder = Decoder(("id", "shelf", "price"))

    def told(key, value):
        try:
            return str(decoder.told(key, value))
        except Unread as e:
            return _told(e)

    def run(data):
        said = told(None, data)
        told(data, deletion)
        return said.partition("(")[0]

    return run


def event_samples():
    from feeds.debezium_events import event
    from feeds.recorded import recording

    rows = ({"id": 1, "shelf": 0}, {"id": 1, "shelf": 7, "price": {"scale": 2, "value": "BQ=="}})
    plain = [event("u", *rows), event("d", rows[1]), event("t"), b'{"schema":{},"payload":{"op":"c"}}']
    return [*plain, *(each.value for each in recording("mysql", "plain") if each.value)]


TARGETS = {
    "frames": Target(frames, frame_samples, 330_000),
    "packs": Target(packs, pack_samples, 60_000),
    "records": Target(records, record_samples, 330_000),
    "requests": Target(
        requests, request_samples, 150_000, words=("GET ", "HTTP/1.1", "Host: ", "/explain?key=", "\r\n")
    ),
    "states": Target(states, state_samples, 60_000),
    "configurations": Target(
        configurations,
        configuration_samples,
        10_000,
        words=("${NAME}", "${", "- ", ": ", "!!python", "&a", "*a", "<<: ", "version: 1", "1/s", "{id:int}"),
    ),
    "floors": Target(
        floors, floor_samples, 20_000, length=256, words=("1800000000000000001", "000", "1e9", "nan")
    ),
    "fleet": Target(
        fleet, fleet_samples, 20_000, length=256, words=("nan", "-", "1e308", " 9999999999999 ", "born ")
    ),
    "collected": Target(
        collected,
        collected_samples,
        30_000,
        words=('"key": ', '"kind": ', '"touch"', '"change"', '"count": ', "\\ud800"),
    ),
    "events": Target(
        events,
        event_samples,
        60_000,
        words=(
            '"op":"d"',
            '"before":',
            '"after":',
            '"payload":',
            '"schema":',
            '"fields":[',
            '"connector":"postgresql"',
        ),
    ),
    "urls": Target(
        urls,
        url_samples,
        200_000,
        length=256,
        words=("redis+sentinel://", "&stream=hints", "kafka://", "://", "@", "%", "?"),
    ),
}
