"""Which Redis commands read values, which write them, and where their keys stand.

The clients call `hints_of` after a command has returned. A read leaves a touch, or a miss if the answer shows that the
whole key is absent. Some answers do not show it, because an existing key may give the same: for a field that it lacks (our
hashes lack the fields that are NULL), for a range past its end, for a value that is not a member. Such a read leaves a
touch: a miss asks for a load at once, and would ask again with each such answer. A write leaves a change, whatever its
answer: a DEL that found nothing may still announce that the row has changed. A SET is a change too, for what it puts there may
be old. SET and its like are marked, also where NX has kept what was there. A marked command announces nothing, so if the key
cannot be loaded, the value may stay.

Not in the table: commands about a key rather than its value (TTL, TYPE, OBJECT, EXPIRE: the next refresh sets the ttl
anyway), streams, arrays, scripts and modules (the updater writes strings and hashes), keyspace commands (SCAN, KEYS). The
entries follow the server's `COMMAND GETKEYS`; a test compares them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import compress
from operator import itemgetter, not_
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from cacheupdater_client.protocol.wire import CHANGE, MISS, SET, TOUCH

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

_Absent: TypeAlias = Callable[[object], bool]


class Rule(NamedTuple):
    """Where a command's keys stand: a slice of its words, or counted by the word at `numkeys`."""

    writes: bool
    keys: slice
    numkeys: int = 0
    absent: _Absent | None = None  # None: no answer shows it
    each: bool = False  # one answer for each key
    options: int = 0  # STORE at this word or later turns the read into a write of the key after it
    change: int = CHANGE  # what a write leaves

    def keys_of(self, words: Sequence[object]) -> Sequence[object]:
        """The keys among the words of one command, its name included."""
        if self.writes and self.options:
            return _stored(words, self.options)
        if not self.numkeys:
            return words[self.keys]
        first, step = self.numkeys + 1, self.keys.step or 1
        return words[first : first + step * int(str(words[self.numkeys])) : step]


def _stored(words: Sequence[object], options: int) -> Sequence[object]:
    places = range(options, len(words) - 1)
    return [words[at + 1] for at in places if _text(words[at]) in {"STORE", "STOREDIST"}]


def _text(word: object) -> str:
    return (word.decode("ascii", "replace") if isinstance(word, bytes) else str(word)).upper()


def _is_none(reply: object) -> bool:
    return reply is None


def _is_empty(reply: object) -> bool:
    return not reply


_ONE, _TWO, _ALL = slice(1, 2), slice(1, 3), slice(1, None)
_SECOND, _PAIRS, _BUT_LAST = slice(2, 3), slice(1, None, 2), slice(1, -1)

COMMANDS: dict[object, Rule] = {}
_name = itemgetter(0)


def _reads(names: str, keys: slice = _ONE, *, numkeys: int = 0, absent: _Absent | None = None) -> None:
    rule = Rule(writes=False, keys=keys, numkeys=numkeys, absent=absent)
    COMMANDS.update(dict.fromkeys(names.split(), rule))


def _writes(names: str, keys: slice = _ONE, *, numkeys: int = 0, change: int = CHANGE) -> None:
    COMMANDS.update(
        dict.fromkeys(names.split(), Rule(writes=True, keys=keys, numkeys=numkeys, change=change))
    )


_reads("GET GETEX DIGEST", absent=_is_none)
_reads("STRLEN HLEN LLEN SCARD ZCARD HGETALL HKEYS HVALS SMEMBERS", absent=_is_empty)
_reads("HGET HMGET HGETEX HSTRLEN HRANDFIELD SRANDMEMBER ZRANDMEMBER")
_reads("GETRANGE SUBSTR LINDEX LRANGE ZRANGE ZREVRANGE")
_reads("GETBIT BITCOUNT BITPOS BITFIELD_RO HEXISTS HSCAN LPOS SISMEMBER SMISMEMBER SSCAN SORT_RO")
_reads("ZSCORE ZMSCORE ZRANK ZREVRANK ZCOUNT ZLEXCOUNT ZSCAN")
_reads("ZRANGEBYSCORE ZRANGEBYLEX ZREVRANGEBYSCORE ZREVRANGEBYLEX")
_reads("GEODIST GEOHASH GEOPOS GEOSEARCH GEORADIUS_RO GEORADIUSBYMEMBER_RO")
COMMANDS["MGET"] = Rule(writes=False, keys=_ALL, absent=_is_none, each=True)
_reads("EXISTS", _ALL, absent=_is_empty)
_reads("PFCOUNT SDIFF SINTER SUNION", _ALL)
_reads("LCS", _TWO)
_reads("SINTERCARD SDIFFCARD SUNIONCARD ZDIFF ZINTER ZUNION ZINTERCARD", numkeys=1)
COMMANDS["SORT"] = Rule(writes=False, keys=_ONE, options=2)
COMMANDS["GEORADIUS"] = Rule(writes=False, keys=_ONE, options=6)
COMMANDS["GEORADIUSBYMEMBER"] = Rule(writes=False, keys=_ONE, options=5)

_writes("SET SETEX PSETEX SETNX GETSET HSET HMSET HSETNX HSETEX", change=SET)
_writes("MSET MSETNX", _PAIRS, change=SET)
_writes("MSETEX", _PAIRS, numkeys=1, change=SET)
_writes("COPY", _SECOND, change=SET)
_writes("RENAME RENAMENX", _TWO, change=SET)
_writes("RESTORE", change=SET)
_writes("GETDEL DELEX APPEND SETRANGE SETBIT BITFIELD")
_writes("INCR INCRBY INCRBYFLOAT INCREX DECR DECRBY")
_writes("DEL UNLINK", _ALL)
_CLEARS = COMMANDS["DEL"]  # and of UNLINK, but of no other command
_writes("SMOVE RPOPLPUSH BRPOPLPUSH LMOVE BLMOVE LMOVEM BLMOVEM", _TWO)
_writes("BITOP", _SECOND)
_writes("MOVE")
_writes("HINCRBY HINCRBYFLOAT HDEL HGETDEL")
COMMANDS["HIMPORT SET"] = COMMANDS["HSET"]  # one word to redis-py
_writes("LPUSH RPUSH LPUSHX RPUSHX LPOP RPOP LSET LREM LTRIM LINSERT")
_writes("BLPOP BRPOP BZPOPMIN BZPOPMAX", _BUT_LAST)
_writes("LMPOP ZMPOP", numkeys=1)
_writes("BLMPOP BZMPOP", numkeys=2)
_writes("SADD SREM SPOP SDIFFSTORE SINTERSTORE SUNIONSTORE")
_writes("ZADD ZINCRBY ZREM ZREMRANGEBYSCORE ZREMRANGEBYRANK ZREMRANGEBYLEX ZPOPMIN ZPOPMAX")
_writes("ZRANGESTORE ZDIFFSTORE ZINTERSTORE ZUNIONSTORE GEOADD GEOSEARCHSTORE PFADD PFMERGE")


def rule_of(words: Sequence[object]) -> Rule | None:
    """The rule of a command, however its name was written; None for a command that leaves no hints."""
    rule = COMMANDS.get(words[0]) or COMMANDS.get(_text(words[0]))
    if rule is not None and rule.options and _stored(words, rule.options):
        return rule._replace(writes=True)
    return rule


def cleared(queued: Mapping[int, Sequence[object]], replies: Sequence[object]) -> Collection[int]:
    """The places of those DELs of a pipeline whose keys are set later in it. Such a DEL announces nothing: it makes room.

    Applications replace a hash so, for HSET alone would leave old fields there.
    """
    rules = list(map(COMMANDS.get, map(_name, queued.values())))
    if _CLEARS not in rules and None not in rules:  # as mostly; None: unknown, or spelled in another way
        return ()
    found: set[int] = set()
    later: set[bytes | None] = set()
    for at in sorted(queued, reverse=True):
        words = queued[at]
        rule = rule_of(words)
        if rule is None or at >= len(replies) or isinstance(replies[at], Exception):
            continue
        if rule is _CLEARS and later.issuperset(map(_spelled, rule.keys_of(words))):
            found.add(at)
        elif rule.writes and rule.change == SET:
            later.update(map(_spelled, rule.keys_of(words)))
            later.discard(None)
    return found


def _spelled(key: object) -> bytes | None:
    """The key as it is sent, so that text and bytes are the same key; None for a type that must not be touched here."""
    if isinstance(key, bytes):
        return key
    return str(key).encode("utf-8", "surrogatepass") if isinstance(key, str | int | float) else None


def hints_of(words: Sequence[object], reply: object) -> Sequence[tuple[int, Sequence[object]]]:
    """The kinds and keys of the hints that a command leaves when it has returned `reply`."""
    rule = rule_of(words)
    if rule is None:
        return ()
    keys = rule.keys_of(words)
    if rule.writes:
        return ((rule.change, keys),)
    if not (rule.each and isinstance(reply, list) and len(reply) == len(keys)):
        return ((MISS if rule.absent is not None and rule.absent(reply) else TOUCH, keys),)
    if all(reply):  # the usual case, quickly seen; an empty value is false, but there
        return ((TOUCH, keys),)
    there = [value is not None for value in reply]
    return (TOUCH, list(compress(keys, there))), (MISS, list(compress(keys, map(not_, there))))
