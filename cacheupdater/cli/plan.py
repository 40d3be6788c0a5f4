"""`cacheupdater plan`: computes from a recording what other budgets would give. Contacts nothing."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from cacheupdater.cli import exits
from cacheupdater.cli.tables import number, percent, table

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from cacheupdater.recording.plan import Planned
    from cacheupdater.recording.recording import Recording

_BUDGETS_MAX = 20  # as many lines as a person compares
_TELLING = 20  # sampled keys that were seen to change; from fewer, the rate is known to within a half at best


class Budget(NamedTuple):
    text: str
    rate: float  # rows or milliseconds per second
    timed: bool


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    text = "Say what budgets would give, computed from a file of `cacheupdater record`. Contacts nothing."
    parser = commands.add_parser("plan", help="say what other budgets would give", description=text)
    parser.add_argument("recording", metavar="FILE", help="what `cacheupdater record` has written")
    parser.add_argument(
        "--budget",
        metavar="RATES",
        type=_budgets,
        required=True,
        help="such as 100/s,500/s,2000/s, or 300ms/s where database time is the budget",
    )
    parser.set_defaults(command=plan)


def plan(args: argparse.Namespace, _environ: Mapping[str, str]) -> int:
    from cacheupdater.errors import Misconfigured
    from cacheupdater.recording.recording import BYTES_MAX, decode

    try:
        with Path(args.recording).open("rb") as file:
            recording = decode(file.read(BYTES_MAX + 1))
        print("\n".join(_lines(recording, args.budget)))
    except OSError as e:
        raise Misconfigured(f"{args.recording} cannot be read: {e.strerror or e}") from e
    except Misconfigured as e:
        raise Misconfigured(f"{args.recording} {e}") from e
    return exits.OK


def _lines(recording: Recording, budgets: Sequence[Budget]) -> Iterable[str]:
    from cacheupdater.errors import Misconfigured

    yield from _known(recording)
    yield ""
    sources = dict.fromkeys(each.source for each in recording.spaces if each.keys)
    if not sources:
        raise Misconfigured("holds no reads: nothing was read while it was made")
    header = ("SOURCE", "BUDGET", "SPENT", "STALE", "BETWEEN", "PRICE", "STARVED KEYS", "THEIR READS")
    yield from table(header, (row for source in sources for row in _rows(recording, source, budgets)))
    announced = sum(each.announced for each in recording.spaces)
    if announced:
        each = number(announced / recording.seconds)
        yield f"\n{each} changes a second were announced; with them reads are fresher than this."


def _known(recording: Recording) -> Iterable[str]:
    """What the recording holds, and how certain the results are."""
    reads = sum(times * keys for each in recording.spaces for times, keys in each.keys.items())
    keys = sum(sum(each.keys.values()) for each in recording.spaces)
    yield f"{number(reads / recording.seconds)} reads/s of {keys:,} keys, recorded for {recording.seconds:g}s"
    sample = [watched for each in recording.spaces for watched in each.sample]
    changed = sum(1 for each in sample if each.changes > 0.0 and each.exposure > 0.0)
    yield (
        f"change rates from {len(sample):,} sampled keys, {changed:,} of which were seen to change;"
        " in 9 of 10 samples like it the stale share lies between the limits shown"
    )
    for source, least in {each.source: each.least_gain for each in recording.spaces if each.keys}.items():
        if least:
            yield f"rows of {source} that would prevent fewer than {least:g} stale reads are not spent (least_gain)"
    if changed < _TELLING:
        yield "That is little to go by: record for longer, or at a busier time."


def _rows(recording: Recording, source: str, budgets: Sequence[Budget]) -> Iterable[Sequence[str]]:
    import numpy as np

    from cacheupdater.recording.plan import plan as planned

    found: dict[Budget, Planned] = {}
    for timed in (False, True):
        some = [each for each in budgets if each.timed is timed]
        random = np.random.default_rng(1)  # the same file gives the same answer
        if some:
            rates = [each.rate for each in some]
            found.update(
                zip(some, planned(recording, source, rates, timed=timed, random=random), strict=True)
            )
    for budget in budgets:
        mean, low, high = found[budget]
        yield (
            source,
            budget.text,
            percent(mean.spent / budget.rate),
            percent(mean.stale),
            f"{percent(low)} to {percent(high)}",
            f"{mean.price:.3g}",
            percent(mean.starved),
            percent(mean.starved_reads),
        )


def _budgets(text: str) -> list[Budget]:
    budgets = list(dict.fromkeys(_budget(each.strip()) for each in text.split(",")))
    if len(budgets) > _BUDGETS_MAX:
        raise argparse.ArgumentTypeError(f"at most {_BUDGETS_MAX} at a time")
    return budgets


def _budget(text: str) -> Budget:
    from cacheupdater.config import units

    timed = text.endswith("s/s")
    try:
        rate = units.database_time(text) * 1000.0 if timed else units.rate(text)
    except ValueError as e:
        raise argparse.ArgumentTypeError(str(e)) from e
    if not 0.0 < rate <= 1e9:
        raise argparse.ArgumentTypeError(f"must be more than nothing and at most 1000000000/s, not {text!r}")
    return Budget(text, rate, timed)
