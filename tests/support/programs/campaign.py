"""Plays blocks of programs on redis-py and on our clients, sync and asyncio, and compares replies and hints.

Each program is played seven times on an emptied Redis: by redis-py, by our client, and by redis-py's client after `instrument()`,
sync and asyncio, and once by the spy, for the model. One client of each kind serves the whole block, as in an application.
"""

from __future__ import annotations

import asyncio
import time
import warnings
from collections import Counter
from contextlib import AsyncExitStack, contextmanager, nullcontext
from typing import TYPE_CHECKING, NamedTuple

import redis
import redis.asyncio
from stories.client import Both, Ear

import cacheupdater_client
import cacheupdater_client.asyncio
from cacheupdater_client.protocol.wire import CHANGE, MISS, SET, TOUCH
from programs.drawing import Program, draw
from programs.model import Hint, expected
from programs.playing import play, spy

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

KINDS = {TOUCH: "touch", MISS: "miss", SET: "set", CHANGE: "change"}
REPLAY = "PYTHONPATH=tests/support .venv/bin/python -m programs"


class Report(NamedTuple):
    """What a block did. Each program counts once, although it was played on several clients; hints are those of all that leave some."""

    programs: int
    commands: int
    hints: Counter[str]  # by kind
    failure: str  # of the first program that differs; empty if none does
    seconds: float  # of CPU


class Pair(NamedTuple):
    """redis-py's client and ours, both sync or both asyncio, with the same settings."""

    name: str
    stock: Both
    ours: Both


def play_block(seeds: Iterable[int], url: str) -> Report:
    """Plays these seeds until one fails. The Redis at `url` is emptied."""
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # deprecated commands leave hints too
        programs, commands, hints, failure = asyncio.run(_play_all(seeds, url))
    return Report(programs, commands, hints, failure, time.process_time() - began)


async def _play_all(seeds: Iterable[int], url: str) -> tuple[int, int, Counter[str], str]:
    ear, hints, programs, commands = Ear("programs"), Counter[str](), 0, 0
    ear.heard()
    async with AsyncExitStack() as stack:
        plain = stack.enter_context(redis.Redis.from_url(url))
        # it leaves no hints, even while redis-py's own clients do
        intruder = stack.enter_context(cacheupdater_client.Redis.from_url(url, emit="none"))
        pairs = {decodes: await _pairs(stack, url, ear, decodes=decodes) for decodes in (False, True)}
        for seed in seeds:
            program = draw(seed)
            failure = await _play_one(program, pairs[program.decodes], (plain, intruder), (ear, hints))
            programs, commands = programs + 1, commands + len(program.commands)
            if failure:
                return programs, commands, hints, failure
    return programs, commands, hints, ""


async def _pairs(stack: AsyncExitStack, url: str, ear: Ear, *, decodes: bool) -> list[Pair]:
    options = {"decode_responses": decodes}
    sync = [
        stack.enter_context(redis.Redis.from_url(url, **options)),
        stack.enter_context(cacheupdater_client.Redis.from_url(url, emit=ear.url, **options)),
    ]
    waiting = [
        await stack.enter_async_context(redis.asyncio.Redis.from_url(url, **options)),
        await stack.enter_async_context(
            cacheupdater_client.asyncio.Redis.from_url(url, emit=ear.url, **options)
        ),
    ]
    return [Pair("sync", *map(Both, sync)), Pair("asyncio", *map(Both, waiting))]


async def _play_one(
    program: Program,
    pairs: Iterable[Pair],
    others: tuple[redis.Redis, redis.Redis],
    heard: tuple[Ear, Counter[str]],
) -> str:
    """The failure of a program, told; empty if there is none."""
    (plain, intruder), (ear, sums) = others, heard
    plain.flushdb()
    model = expected(program, spy(plain, program))
    for pair in pairs:
        plain.flushdb()
        replies = await play(pair.stock, program, intruder)
        for name, client, around in (
            (pair.name, pair.ours, nullcontext()),
            (f"{pair.name}, instrumented", pair.stock, _instrumented(ear)),
        ):
            plain.flushdb()
            with around:
                ours = await play(client, program, intruder)
            hints = ear.heard(exact=True)
            if ours != replies:
                return _told(program, name, [*_differences(program, replies, ours)])
            if hints != model:
                return _told(program, name, [*_missing(model - hints, "no"), *_missing(hints - model, "a")])
            for (kind, _), count in hints.items():
                sums[KINDS[kind]] += count
    return ""


@contextmanager
def _instrumented(ear: Ear) -> Iterator[None]:
    """Within, redis-py's own clients leave hints."""
    cacheupdater_client.instrument(emit=ear.url)
    try:
        yield
    finally:
        cacheupdater_client.uninstrument()


def _differences(program: Program, stock: list[object], ours: list[object]) -> Iterable[str]:
    for step, theirs, mine in zip(program.steps, stock, ours, strict=True):
        if theirs != mine:
            yield f"  {step}\n    redis-py: {theirs}\n    ours:     {mine}"


def _missing(hints: Counter[Hint], word: str) -> list[str]:
    wrong = "the model has one" if word == "no" else "the model has none"
    return [
        f"  {word} {KINDS[kind]} of {key!r}, {count} times: {wrong}" for (kind, key), count in hints.items()
    ]


def _told(program: Program, client: str, what: list[str]) -> str:
    steps = "\n".join(f"  {step}" for step in program.steps)
    lines = [f"program {program.seed} differs on the {client} client:", *what, "its steps:", steps]
    return "\n".join([*lines, f"see it again: {REPLAY} {program.seed}"])
