"""Python loaders for updaters under test. They note each call in the file that LOADER_LOG names: time and number of keys."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

_LOG = os.environ.get("LOADER_LOG")  # noqa: TID251  how the test tells its child


def _note(keys):
    if _LOG:
        with Path(_LOG).open("a", encoding="utf-8") as log:
            log.write(f"{time.monotonic()} {len(keys)}\n")


async def banners(slots):
    """Async; a slot whose name begins with `no` has no banner."""
    _note(slots)
    await asyncio.sleep(0)
    return {slot: {"slot": slot, "text": f"banner of {slot}"} for slot in slots if not slot.startswith("no")}


def prices(pairs):
    """An ordinary function; keys of two captures come as tuples."""
    _note(pairs)
    return {(number, country): {"price": number * len(country)} for number, country in pairs}


def raising(keys):
    """Raises if key 13 is asked for."""
    if 13 in keys:
        raise ValueError("secret of key 13")
    return dict.fromkeys(keys, "fine")


async def hanging(keys):
    """Never answers if key 13 is asked for."""
    if 13 in keys:
        await asyncio.sleep(3600)
    return dict.fromkeys(keys, "fine")


def stuck(keys):
    """As `hanging`, in a thread that cannot be stopped."""
    if 13 in keys:
        time.sleep(3600)
    return dict.fromkeys(keys, "fine")


def leaving(keys):
    """Tries to end the process."""
    if 13 in keys:
        raise SystemExit(3)
    return dict.fromkeys(keys, "fine")


def nonsense(keys):
    """Answers of wrong forms, by key."""
    if 13 in keys:
        return ["no", "mapping"]
    if 14 in keys:
        return {"14": "a key of another type"}
    if 15 in keys:
        return {15: None}
    if 16 in keys:
        return {**dict.fromkeys(keys, "fine"), 16: object()}
    return dict.fromkeys(keys, "fine")


def named(keys):
    """A number for each key. Notes the keys themselves, too: time and keys."""
    with Path(os.environ["LOADER_LOG"]).open("a", encoding="utf-8") as log:  # noqa: TID251  how the test tells its child
        log.write(f"{time.monotonic()} {' '.join(map(str, keys))}\n")
    return dict.fromkeys(keys, 1)


async def plain(keys):
    """A short value for each key, for tests that are not about loaders."""
    return dict.fromkeys(keys, "fine")


class Unlucky:
    """A model whose own code fails."""

    def model_dump(self):
        raise LookupError("secret of a model")


def unlucky(keys):
    """A model for each key. None of them can be written."""
    return {key: Unlucky() for key in keys}


FEW = 100


async def few(numbers):
    """Only the numbers below a hundred have a row. It notes how many of the others it is asked for."""
    _note([number for number in numbers if number >= FEW])
    return {number: "fine" for number in numbers if number < FEW}


async def dated(keys):
    """The value of each key is the time of its load, so that Redis tells afterwards how much was loaded when."""
    now = time.time()  # noqa: TID251  as a database would say it
    return {key: {"at": now} for key in keys}
