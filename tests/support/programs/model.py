"""Which hints a program leaves, by the rules of docs/reference/client.md, and without the client's table.

The client derives hints from the words that it sends and from the replies. The model knows redis-py's methods and what stood in
Redis before each command (`Fact`). It looks at the replies of STRLEN and MGET only, which do not show all that stood there.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from cacheupdater_client.protocol.wire import CHANGE, MISS, SET, TOUCH
from programs.drawing import Command, Program, Queued, Single, Step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

Hint: TypeAlias = tuple[int, bytes]


class Fact(NamedTuple):
    """One command as it ran on a Redis of its own."""

    existing: frozenset[bytes]  # of its keys, before it ran
    reply: object

    @property
    def failed(self) -> bool:
        return isinstance(self.reply, Exception)


# reads whose answer for an absent key is given by no existing key
WHOLE = "get getex hgetall hkeys hvals hlen smembers scard llen zcard"
# reads of a part, and reads of many keys whose answer does not tell them apart
PART = """
getrange substr getbit bitcount bitpos hget hmget hexists hstrlen hscan lrange lindex lpos sismember smismember
zrange zrevrange zscore zmscore zrank zrevrank zcount zlexcount zrangebyscore zrevrangebyscore zrangebylex
"""
PART_OF_ALL = "sdiff sinter sunion zdiff zinter zunion pfcount"
SETS = frozenset(
    "set setex psetex setnx getset hset hsetnx mset msetnx rename renamenx copy restore".split()  # noqa: SIM905  as the lists here
)
"""Those that put a value where there was none."""
WRITE = """
set setex psetex setnx getset getdel append setrange setbit incr incrby incrbyfloat decr decrby
hset hsetnx hincrby hincrbyfloat hdel lpush rpush lpushx lpop rpop lset lrem ltrim linsert
sadd srem sdiffstore sinterstore sunionstore zadd zincrby zrem zremrangebyscore zremrangebyrank zremrangebylex
zpopmin zpopmax zrangestore zdiffstore zinterstore zunionstore pfadd pfmerge
"""
WRITE_OF_ALL = "delete del unlink"
WRITE_OF_TWO = "rename renamenx rpoplpush lmove smove"
WRITE_OF_SECOND = "copy bitop"
WRITE_OF_MAPPING = "mset msetnx"
NOTHING = "ping type expire persist object xlen eval dbsize"


def expected(program: Program, facts: Iterable[Sequence[Fact]]) -> Counter[Hint]:
    """The hints of a program. `facts` are those of each step's commands, as far as they ran."""
    hints: Counter[Hint] = Counter()
    for step, found in zip(program.steps, facts, strict=True):
        hints.update(_of_step(step, found))
    return hints


def _of_step(step: Step, facts: Sequence[Fact]) -> Iterable[Hint]:
    if isinstance(step, Single):
        return _of_command(step.command, facts[0])
    if isinstance(step, Queued):
        return _of_queue(step.commands, facts, raises=step.raises)
    reads, queue = facts[: len(step.reads)], facts[len(step.reads) :]
    at_once = [hint for read, fact in zip(step.reads, reads, strict=True) for hint in _of_command(read, fact)]
    return at_once if step.lost else [*at_once, *_of_queue(step.commands, queue, raises=True)]


def _of_queue(commands: Sequence[Command], facts: Sequence[Fact], *, raises: bool) -> list[Hint]:
    """If `execute` raises, the application sees no reply: each write counts as done, and no read as answered."""
    if raises and any(fact.failed for fact in facts):
        return [hint for command in commands for hint in _done(command)]
    done = list(zip(commands, facts, strict=True))
    return [
        hint
        for at, (command, fact) in enumerate(done)
        if not _only_clears(command, done[at + 1 :])
        for hint in _of_command(command, fact)
    ]


def _only_clears(command: Command, later: Sequence[tuple[Command, Fact]]) -> bool:
    """Whether a pipeline deletes keys and sets all of them again."""
    if spoken(command)[0] not in {"delete", "del", "unlink"}:
        return False
    again = {
        key for each, fact in later if spoken(each)[0] in SETS and not fact.failed for key in written(each)
    }
    return again.issuperset(written(command))


def _done(command: Command) -> list[Hint]:
    return [(CHANGE, key) for key in written(command)]


def _of_command(command: Command, fact: Fact) -> list[Hint]:
    if fact.failed:
        return []
    name, args = spoken(command)
    if written(command):
        kind = SET if name in SETS else CHANGE
        return [(kind, key) for key in written(command)]
    if name == "mget":  # it answers for a list or a hash as for an absent key: the reader has found no value
        return [
            (MISS if value is None else TOUCH, key)
            for key, value in zip(names(args), fact.reply, strict=True)
        ]
    return [(_kind(name, fact), key) for key in _read(name, args)]


def _kind(name: str, fact: Fact) -> int:
    """What a read leaves for all its keys."""
    there = True
    if name == "strlen":  # an empty string answers as an absent key does
        there = bool(fact.reply)
    elif name == "exists" or name in WHOLE.split():
        there = bool(fact.existing)
    return TOUCH if there else MISS


def _read(name: str, args: Sequence[object]) -> list[bytes]:
    if name == "exists" or name in PART_OF_ALL.split():
        return names(args)
    if name in NOTHING.split():
        return []
    if name in {"sort", "strlen"} or name in WHOLE.split() or name in PART.split():
        return names(args[:1])
    raise KeyError(f"the model does not know {name}")


def spoken(command: Command) -> tuple[str, Sequence[object]]:
    """The method and its arguments; `execute_command("GET", key)` is `get(key)`."""
    if command.method != "execute_command":
        return command.method, command.args
    return str(command.args[0]).lower(), command.args[1:]


_WRITTEN: dict[str, Callable[[Sequence[object]], Sequence[object]]] = {
    **dict.fromkeys(WRITE.split(), lambda args: args[:1]),
    **dict.fromkeys(WRITE_OF_ALL.split(), lambda args: args),
    **dict.fromkeys(WRITE_OF_TWO.split(), lambda args: args[:2]),
    **dict.fromkeys(WRITE_OF_SECOND.split(), lambda args: args[1:2]),
    **dict.fromkeys(WRITE_OF_MAPPING.split(), lambda args: [key for each in args for key in dict(each)]),
}


def written(command: Command) -> list[bytes]:
    """The keys that a command writes."""
    name, args = spoken(command)
    if "store" in command.options:
        return names([command.options["store"]])
    find = _WRITTEN.get(name)
    return names(find(args)) if find else []


def touched(command: Command) -> list[bytes]:
    """The keys of a read."""
    name, args = spoken(command)
    if written(command) or name in NOTHING.split():
        return []
    return names(args) if name in {"mget", "exists"} else names(args[:1])


def names(keys: Iterable[object]) -> list[bytes]:
    """Keys as Redis sees them; a list among them stands for its elements."""
    found: list[bytes] = []
    for key in keys:
        if isinstance(key, list):
            found += names(key)
        else:
            found.append(key if isinstance(key, bytes) else str(key).encode())
    return found
