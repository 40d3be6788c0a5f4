"""Plays a program on a client, sync or asyncio, and tells every reply and error. `spy` also tells what stood in Redis before.

A lost race needs somebody else who writes the watched key: the intruder, a client of redis-py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redis.exceptions import RedisError

from programs.drawing import Command, Program, Queued, Single, Step, Watched
from programs.model import Fact, touched

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    import redis
    from stories.client import Both


async def play(client: Both, program: Program, intruder: redis.Redis) -> list[object]:
    """What each step returned or raised, with types, so that 1 and True differ."""
    return [await _step(client, step, intruder) for step in program.steps]


async def _step(client: Both, step: Step, intruder: redis.Redis) -> object:
    if isinstance(step, Single):
        return await _outcome(_call(client, step.command))
    if isinstance(step, Queued):
        pipe: Any = client.pipeline(transaction=step.transaction)
        for command in step.commands:
            await _call(pipe, command)
        return await _outcome(pipe.execute(raise_on_error=step.raises))
    return await _watched(client.pipeline(), step, intruder)


async def _watched(pipe: Any, step: Watched, intruder: redis.Redis) -> object:
    try:
        await pipe.watch(step.key)
        outcomes = [await _outcome(_call(pipe, read)) for read in step.reads]
        if step.lost:
            intrude(intruder, step)
        await pipe.multi()
        for command in step.commands:
            await _call(pipe, command)
        return [*outcomes, await _outcome(pipe.execute())]
    finally:
        await pipe.reset()


def intrude(client: redis.Redis, step: Watched) -> None:
    """Writes the watched key."""
    client.set(step.key, "somebody else's")


async def _call(client: Any, command: Command) -> object:
    return await getattr(client, command.method)(*command.args, **command.options)


async def _outcome(pending: Awaitable[object]) -> object:
    try:
        return shown(await pending)
    except RedisError as e:
        return shown(e)


def shown(reply: object) -> object:
    """A reply in a form that compares types too."""
    if isinstance(reply, Exception):
        return type(reply), str(reply)
    if isinstance(reply, list | tuple):
        return type(reply), [shown(each) for each in reply]
    return type(reply), reply


def spy(client: redis.Redis, program: Program) -> list[Sequence[Fact]]:
    """Plays the program in the plainest way: each command alone, after a question which of its keys exist."""
    return [_spied(client, step) for step in program.steps]


def _spied(client: redis.Redis, step: Step) -> list[Fact]:
    if isinstance(step, Single):
        return [_fact(client, step.command)]
    if isinstance(step, Queued):
        return [_fact(client, command) for command in step.commands]
    facts = [_fact(client, read) for read in step.reads]
    if step.lost:
        intrude(client, step)
        return facts
    return [*facts, *(_fact(client, command) for command in step.commands)]


def _fact(client: redis.Redis, command: Command) -> Fact:
    keys = touched(command)
    pipe = client.pipeline(transaction=False)
    for key in keys:
        pipe.exists(key)
    getattr(pipe, command.method)(*command.args, **command.options)
    *there, reply = pipe.execute(raise_on_error=False)
    return Fact(frozenset(key for key, found in zip(keys, there, strict=True) if found), reply)
