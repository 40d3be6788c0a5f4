"""A random program: steps of commands for a Redis that is empty at first. One seed always gives the same program.

The commands are methods of redis-py, because applications call these. There are few keys, so that keys exist, vanish and have
the wrong type. No command is drawn whose answer depends on chance or on the time, for programs are played several times and
the answers compared.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

KEYS = ("a", "b", "c", b"d", "é", 7)
STEPS = 12  # of a program: the keys have then been filled, changed and removed
QUEUE_MAX = 6  # commands of a pipeline
READS_MAX = 2  # after WATCH


class Command(NamedTuple):
    """A call of a method of redis-py."""

    method: str
    args: tuple[object, ...]
    options: Mapping[str, object]


class Single(NamedTuple):
    """A command by itself."""

    command: Command


class Queued(NamedTuple):
    """A pipeline."""

    commands: tuple[Command, ...]
    transaction: bool
    raises: bool


class Watched(NamedTuple):
    """A transaction after WATCH: reads that run at once, then MULTI and a queue."""

    key: object
    reads: tuple[Command, ...]
    commands: tuple[Command, ...]
    lost: bool  # somebody else writes the key before EXEC


Step: TypeAlias = Single | Queued | Watched


class Program(NamedTuple):
    """What one seed draws."""

    seed: int
    steps: tuple[Step, ...]
    decodes: bool  # whether the client decodes its replies

    @property
    def commands(self) -> list[Command]:
        """All commands in order, those that a lost race discards included."""
        found: list[Command] = []
        for step in self.steps:
            if isinstance(step, Single):
                found.append(step.command)
            else:
                found += (*getattr(step, "reads", ()), *step.commands)
        return found


def draw(seed: int) -> Program:
    """The program of a seed."""
    chance = random.Random(seed)
    steps = tuple(_step(chance) for _ in range(STEPS))
    return Program(seed, steps, decodes=chance.random() < 0.3)


def _step(chance: random.Random) -> Step:
    luck = chance.random()
    if luck < 0.6:
        return Single(_command(chance))
    queue = tuple(_command(chance) for _ in range(chance.randint(0, QUEUE_MAX)))
    if luck < 0.85:
        return Queued(queue, transaction=chance.random() < 0.5, raises=chance.random() < 0.5)
    reads = tuple(_call(chance, chance.choice(PURE_READS)) for _ in range(chance.randint(0, READS_MAX)))
    return Watched(chance.choice(KEYS), reads, queue, lost=chance.random() < 0.5)


def _table(text: str) -> list[str]:
    return [each for line in text.strip().splitlines() for each in line.split("|")]


# k and l are two random keys, v is a random value; p and q are HyperLogLogs, whose bytes are no text
READS = _table("""
get k|get k|get k|getex k persist=1|strlen k|mget [k,l]|mget k l|exists k|exists k l|getrange k 0 2|substr k 0 2
getbit k 1|bitcount k|bitpos k 1|execute_command get k|execute_command MGET k l|execute_command hgetall k
hgetall k|hgetall k|hget k f|hmget k [f,g]|hkeys k|hvals k|hlen k|hexists k f|hstrlen k f|hscan k
lrange k 0 -1|llen k|lindex k 0|lpos k x
smembers k|scard k|sismember k m|smismember k [m,n]|sdiff k l|sinter k l|sunion k l
zcard k|zrange k 0 -1|zrevrange k 0 -1|zscore k m|zmscore k [m,n]|zrank k m|zrevrank k m|zcount k 0 9|zlexcount k - +
zrangebyscore k 0 9|zrevrangebyscore k 9 0|zrangebylex k - +|zdiff [k,l]|zinter [k,l]|zunion [k,l]|pfcount p|pfcount p q|sort k alpha=1
""")
WRITES = _table("""
set k v|set k v|set k v nx=1|set k v get=1|set k EMPTY|setex k 100 v|psetex k 99999 v|setnx k v|getset k v|getdel k|append k v
setrange k 1 v|setbit k 1 1|incr k|incrby k 2|incrbyfloat k 0.5|decr k|decrby k 2|delete k|delete k l|unlink k l
mset {k:v,l:v}|msetnx {k:v,l:v}|execute_command SET k v|execute_command del k l
rename k l|renamenx k l|copy k l|bitop AND k l l
hset k f v|hset k g v|hsetnx k f v|hincrby k n 1|hincrbyfloat k n 0.5|hdel k f|hdel k f g n
lpush k x|rpush k v x|lpushx k v|lpop k|rpop k|lset k 0 v|lrem k 0 x|ltrim k 0 1|linsert k before x v|rpoplpush k l|lmove k l
sadd k m v|srem k m|smove k l m|sdiffstore k [k,l]|sinterstore k [k,l]|sunionstore k [k,l]
zadd k {m:1,n:2}|zadd k {m:3}|zincrby k 1 m|zrem k m|zremrangebyscore k 0 1|zremrangebyrank k 0 0|zremrangebylex k - +
zpopmin k|zpopmax k|zrangestore k l 0 1|zdiffstore k [k,l]|zinterstore k [k,l]|zunionstore k [k,l]|pfadd p m|pfadd q m n|pfmerge q p
sort k alpha=1 store=l
""")
OTHERS = _table("ping|type k|expire k 100|persist k|object encoding k|xlen s|eval CALL 1 k|dbsize")
# GETEX may change the time to live, and with it lose its own race
PURE_READS = [each for each in READS if not each.startswith("getex")]
SCRIPT = "return redis.call('exists', KEYS[1])"


def _command(chance: random.Random) -> Command:
    return _call(chance, chance.choice(chance.choice((READS, READS, WRITES, WRITES, WRITES, OTHERS))))


def _call(chance: random.Random, pattern: str) -> Command:
    """One of the lines above with its letters replaced."""
    given = {"k": chance.choice(KEYS), "l": chance.choice(KEYS), "EMPTY": "", "CALL": SCRIPT}
    given["v"] = chance.choice(("x", "m", "value", 7, 3.5, b"\x00\x01"))
    method, *words = pattern.split()
    args = tuple(_word(each, given) for each in words if "=" not in each)
    options = {name: _word(text, given) for name, _, text in (each.partition("=") for each in words) if text}
    return Command(method, args, options)


def _word(text: str, given: Mapping[str, object]) -> object:
    if text.startswith("["):
        return [_word(each, given) for each in text.strip("[]").split(",")]
    if text.startswith("{"):
        pairs = (each.split(":") for each in text.strip("{}").split(","))
        return {_word(name, given): _word(value, given) for name, value in pairs}
    return given.get(text, int(text) if text.lstrip("-").isdigit() else text)
