"""What was learned, as bytes that outlive the process: how often each key is read and changes, and each source's price.

`price.shell.remembering` calls it, at a start and every minute. Only `copy` must run while nothing else moves: it takes some
ten milliseconds for a part of the table. The rest may run in a thread. A file is only advice: what does not fit (another
version, a damaged byte, a namespace that is gone) is left out, and learned again.

Ages are kept and not times, for a clock begins anew with each process. The wall clock says how much time has passed between
two processes. Values have aged by all of it. Read counts have decayed only by a part of it, for nobody listened meanwhile.

Little-endian: magic, version, CRC-32 of all that follows, length of a JSON header, the header, the columns, the keys.
"""

from __future__ import annotations

import json
import struct
from itertools import compress, pairwise
from math import inf, isfinite
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

import numpy as np

from cacheupdater.core.namespace import Terms
from cacheupdater.errors import Faulty
from cacheupdater.price.learning import SLOW_MEMORY, heard
from cacheupdater.price.market import PRICE_MAX
from cacheupdater.price.posterior import SHAPE_MAX, SHAPE_MIN
from cacheupdater.price.table import LOADED, PALM, SEEN, SLOW, SPACE, TOUCHED, A, B
from cacheupdater_client.protocol.wire import KEY_BYTES_MAX, partition_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from cacheupdater.core.budget import Source
    from cacheupdater.core.keyspace import Keyspace
    from cacheupdater.core.namespace import Namespace
    from cacheupdater.price.index import Doubles
    from cacheupdater.price.market import Market
    from cacheupdater.price.policy import Price

SIZE_MAX = 256 * 1024 * 1024
"""Bytes of a file: a million keys of 200 bytes. Beyond, the least read are left out."""

ABSENCE_MAX = 30 * 86_400.0
"""Seconds that we believe to have been away at the most; if the clock says more, it is wrong."""

UNHEARD = 2 * SLOW_MEMORY
"""Seconds for which read counts decay at most while nobody listens. After a longer decay all keys would be forgotten, and
with them what is known of their changes. The counts are put right within minutes."""

MAGIC = b"cacheupd"
VERSION = 1

_START = struct.Struct("<8sHI")  # magic, version, checksum
_HEADER = struct.Struct("<I")
_ROW = np.dtype(
    [
        ("length", "<u2"),
        ("space", "<u2"),
        ("a", "<f4"),
        ("b", "<f4"),
        ("silent_a", "<f4"),  # 0: as a and b
        ("silent_b", "<f4"),
        ("slow", "<f4"),  # reads, decayed to the moment of the copy
        ("palm", "<f4"),
        ("seen", "<f4"),
        ("loaded", "<f4"),  # seconds ago
        ("stamp", "<f8"),  # a version, or how many seconds ago the row changed; nan: nothing
    ]
)
_LEAST_KEY = _ROW.itemsize  # bytes in the file, beside the key itself
CHUNK = 100_000
"""Rows of a table that are copied at once: 8 MB, some ten milliseconds in which the loop stands still."""

_BLOCK = 20_000  # keys per step in a thread, so that it never keeps the interpreter from the loop for long
_B_MIN, _B_MAX = 1e-6, 1e12  # as the posterior's
_COUNT_MAX = 1e9  # decayed reads
_SEEN_MAX = 20.0
_HEADER_ROOM = 1024 * 1024  # bytes; thousands of names need less
_NO_PRICE = (0.0, False)
_NO_TERMS = Terms()


class Copy(NamedTuple):
    """A part of one partition's table at one moment."""

    names: tuple[str, ...]
    stamps: tuple[str, ...]  # what a namespace's stamps mean
    keys: list[bytes | None]
    state: NDArray[np.float32]
    times: Doubles
    silent: NDArray[np.float32] | None
    stamp: Doubles | None
    heard: float  # seconds that its read counts stand for
    now: float


class Learned(NamedTuple):
    """What a file told about some keys, the most read first."""

    names: tuple[str, ...]
    stamps: tuple[str, ...]
    keys: list[bytes]
    rows: NDArray[np.void]

    def split(self, partitions: int) -> list[Learned]:
        """By the partition that owns a key."""
        owners = np.fromiter((partition_of(key, partitions) for key in self.keys), np.intp, len(self.keys))
        parts = (np.flatnonzero(owners == each) for each in range(partitions))
        return [
            self._replace(keys=[self.keys[at] for at in mine.tolist()], rows=self.rows[mine])
            for mine in parts
        ]


class Told(NamedTuple):
    """A whole file."""

    learned: Learned
    prices: Mapping[str, tuple[float, bool]]  # by source: the price, and whether it is one of time
    absent: float  # seconds since it was written


class Moment(NamedTuple):
    """When a table is filled."""

    now: float
    absent: float  # seconds since its file was written


# --- out ------------------------------------------------------------------------------------------------


def copy(policy: Price, begin: int, *, now: float) -> Copy:
    """What a policy knows now about the `CHUNK` rows from this one on."""
    table, namespaces = policy.table, policy.spaces.namespaces
    rows = slice(begin, min(begin + CHUNK, table.high))
    return Copy(
        tuple(each.name for each in namespaces),
        tuple(each.terms.stamp if each.terms else "" for each in namespaces),
        table.keys[rows],
        table.state[rows].copy(),
        table.times[rows].copy(),
        None if table.silent is None else table.silent[rows].copy(),
        None if table.stamp is None else table.stamp[rows].copy(),
        heard(SLOW_MEMORY, now - policy.born),
        now,
    )


def prices_of(markets: Mapping[Source, Market]) -> dict[str, tuple[float, bool]]:
    """The price of each source, and whether it is one of time."""
    return {source.name: (market.price, source.timed) for source, market in markets.items()}


def learned(copied: Copy) -> Learned:
    """The keys of a copy, as a file holds them."""
    keys = [key for key in copied.keys if key is not None]
    places = np.flatnonzero(np.fromiter((key is not None for key in copied.keys), bool, len(copied.keys)))
    state, times = copied.state[places], copied.times[places]
    rows = np.zeros(len(places), _ROW)
    space = state[:, SPACE].astype(np.intp)
    rows["length"] = np.fromiter((len(key) for key in keys), np.intp, len(keys))
    rows["space"], rows["a"], rows["b"] = space, state[:, A], state[:, B]
    idle = np.maximum(copied.now - times[:, TOUCHED], 0.0)
    rows["slow"] = state[:, SLOW] * np.exp(idle / -SLOW_MEMORY) * (SLOW_MEMORY / copied.heard)
    rows["palm"], rows["seen"] = state[:, PALM], state[:, SEEN]
    rows["loaded"] = np.maximum(copied.now - times[:, LOADED], 0.0)
    if copied.silent is not None:
        rows["silent_a"], rows["silent_b"] = copied.silent[places].T
    rows["stamp"] = np.nan if copied.stamp is None else copied.stamp[places]
    dated = np.array([each == "age" for each in copied.stamps], bool)[space]
    rows["stamp"][dated] = copied.now - rows["stamp"][dated]
    return Learned(copied.names, copied.stamps, keys, rows)


def file_of(
    parts: Sequence[Learned], prices: Mapping[str, tuple[float, bool]], *, most: int, wall: float
) -> list[bytes]:
    """The pieces of a file. `wall` is the time of day in seconds."""
    every = _merged(parts, most)
    header = {
        "wall": wall,
        "namespaces": every.names,
        "stamps": every.stamps,
        "prices": prices,
        "keys": len(every.keys),
    }
    text = json.dumps(header).encode()
    pieces = [_HEADER.pack(len(text)), text]
    pieces += [every.rows[at:to].tobytes() for at, to in _blocks(len(every.keys))]
    pieces += [b"".join(every.keys[at:to]) for at, to in _blocks(len(every.keys))]
    return [_START.pack(MAGIC, VERSION, _checksum(pieces)), *pieces]


def _merged(parts: Sequence[Learned], most: int) -> Learned:
    """All keys, the most read first, as far as there is room. All parts have the same namespaces."""
    if not parts:
        return Learned((), (), [], np.zeros(0, _ROW))
    keys = [key for part in parts for key in part.keys]
    rows = np.concatenate([part.rows for part in parts])
    order = np.argsort(-rows["slow"], kind="stable")[:most]
    sizes = np.cumsum(rows["length"][order].astype(np.int64) + _LEAST_KEY)
    order = order[: int(np.searchsorted(sizes, SIZE_MAX - _HEADER_ROOM, side="right"))]
    ordered = [rows[order[at:to]] for at, to in _blocks(len(order))]
    return parts[0]._replace(
        keys=[keys[at] for at in order.tolist()], rows=np.concatenate([rows[:0], *ordered])
    )


def _checksum(pieces: Iterable[bytes]) -> int:
    total = 0
    for piece in pieces:
        total = crc32(piece, total)
    return total


def _blocks(count: int) -> list[tuple[int, int]]:
    return list(pairwise([*range(0, count, _BLOCK), count])) if count else []


# --- in -------------------------------------------------------------------------------------------------


def read(data: bytes, *, wall: float) -> Told:
    """What a file tells. Faulty, with the reason, if it is none of ours or not whole."""
    if len(data) < _START.size + _HEADER.size or data[: len(MAGIC)] != MAGIC:
        raise Faulty("it is not a file of learned state")
    _, version, checksum = _START.unpack_from(data)
    if version != VERSION:
        raise Faulty(f"it is of version {version}, and this is version {VERSION}")
    if crc32(memoryview(data)[_START.size :]) != checksum:
        raise Faulty("its checksum is wrong: it was damaged or cut short")
    try:
        return _read(data, wall)
    except (ValueError, KeyError, TypeError, AttributeError, struct.error) as e:
        raise Faulty(f"it cannot be understood: {e}") from e


def _read(data: bytes, wall: float) -> Told:
    (size,) = _HEADER.unpack_from(data, _START.size)
    at = _START.size + _HEADER.size
    header = json.loads(data[at : at + size])
    at += size
    rows = np.frombuffer(data, _ROW, int(header["keys"]), at).copy()
    ends = at + rows.nbytes + np.concatenate(([0], np.cumsum(rows["length"].astype(np.int64))))
    if ends[-1] != len(data):
        raise ValueError("its keys are not where they should be")
    keys = [data[begin:end] for begin, end in pairwise(ends.tolist())]
    names, stamps = tuple(map(str, header["namespaces"])), tuple(map(str, header["stamps"]))
    sound = _sound(rows) & (rows["space"] < min(len(names), len(stamps)))
    if len(set(keys)) < len(keys):  # a key that moved in its table during the copy stands here twice
        last = dict(zip(keys, range(len(keys)), strict=True))
        sound &= np.array([last[key] == at for at, key in enumerate(keys)])
    kept = Learned(names, stamps, list(compress(keys, sound.tolist())), rows[sound])
    prices = {str(name): (float(price), bool(timed)) for name, (price, timed) in header["prices"].items()}
    absent = float(wall) - float(header["wall"])
    return Told(kept, prices, min(max(absent, 0.0), ABSENCE_MAX) if isfinite(absent) else 0.0)


def _sound(rows: NDArray[np.void]) -> NDArray[np.bool_]:
    """Which rows hold only numbers that could have been learned. The others are not worth repairing."""
    good = (rows["length"] > 0) & (rows["length"] <= KEY_BYTES_MAX)
    for name in ("a", "b", "silent_a", "silent_b", "slow", "palm", "seen", "loaded"):
        good &= np.isfinite(rows[name]) & (rows[name] >= 0.0)
    return np.asarray(good & (rows["a"] > 0.0) & (rows["b"] > 0.0) & ~np.isinf(rows["stamp"]))


# --- back into the tables -------------------------------------------------------------------------------


def restore_prices(markets: Mapping[Source, Market], prices: Mapping[str, tuple[float, bool]]) -> None:
    """For sources whose budget still has the same unit."""
    for source, market in markets.items():
        price, timed = prices.get(source.name, _NO_PRICE)
        if timed == source.timed and 0.0 < price <= PRICE_MAX:
            market.price = price


def restore(policy: Price, keyspace: Keyspace[Namespace], part: Learned, *, moment: Moment) -> int:
    """Fills the empty table of a partition that was just gained. Returns how many keys found no place."""
    policy.born = -inf  # what is restored was counted for long enough
    here = {each.name: each for each in policy.spaces.namespaces}
    placed = 0
    for number, name in enumerate(part.names):
        mine = np.flatnonzero(part.rows["space"] == number)
        if name in here and len(mine):
            namespace, stamps = here[name], part.stamps[number]
            mine = mine[_still(keyspace, namespace, [part.keys[at] for at in mine.tolist()])]
            rows = policy.table.admit([part.keys[at] for at in mine.tolist()])
            told = part.rows[mine[: len(rows)]]
            _fill(policy, rows, namespace, told, moment=moment)
            if stamps == (namespace.terms or _NO_TERMS).stamp:  # they still mean the same
                said = told["stamp"]
                _fill_stamps(policy, rows, moment.now - moment.absent - said if stamps == "age" else said)
            placed += len(rows)
    return len(part.keys) - placed


def _still(keyspace: Keyspace[Namespace], namespace: Namespace, keys: list[bytes]) -> list[int]:
    """Places of the keys that are still this namespace's."""
    groups, _ = keyspace.resolve_many(keys)
    own = groups.get(namespace, [])
    if len(own) == len(keys):
        return list(range(len(keys)))
    known = set(own)
    return [at for at, key in enumerate(keys) if key in known]


def _fill(
    policy: Price, rows: NDArray[np.int32], namespace: Namespace, told: NDArray[np.void], *, moment: Moment
) -> None:
    table, spaces = policy.table, policy.spaces
    now, absent = moment
    number = spaces.number[namespace]
    state = table.state[rows]
    state[:, SPACE] = number
    state[:, A], state[:, B] = _bounded(told["a"], told["b"])
    state[:, SLOW] = np.minimum(told["slow"], _COUNT_MAX) * np.exp(-min(absent, UNHEARD) / SLOW_MEMORY)
    state[:, PALM] = np.minimum(told["palm"], _COUNT_MAX)
    state[:, SEEN] = np.minimum(told["seen"], _SEEN_MAX)
    table.state[rows] = state
    table.times[rows, TOUCHED] = now
    table.times[rows, LOADED] = now - absent - told["loaded"]
    table.due[rows] = now
    silent = told["silent_a"] > 0.0
    if silent.any() or table.silent is not None:
        own = table.with_silent()
        own[rows] = state[:, (A, B)]
        own[rows[silent]] = np.stack(_bounded(told["silent_a"][silent], told["silent_b"][silent]), axis=1)
    spaces.markets[spaces.market[number]].tracked += len(rows)


def _fill_stamps(policy: Price, rows: NDArray[np.int32], stamps: Doubles) -> None:
    said = np.isfinite(stamps)
    if said.any():
        policy.table.with_stamp()[rows[said]] = stamps[said]


def _bounded(a: NDArray[np.float32], b: NDArray[np.float32]) -> tuple[Doubles, Doubles]:
    return np.clip(a, SHAPE_MIN, SHAPE_MAX), np.clip(b, _B_MIN, _B_MAX)
