"""`cacheupdater freshness`: asks the running updater how fresh its readers' values are, and what that costs.

The updater is found at the admin address of the configuration. The command only prints; the how-to explains the figures.
With `-o json` it prints the updater's page as it is.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from cacheupdater.cli import exits
from cacheupdater.cli.asking import address_of, asked
from cacheupdater.cli.tables import number, percent, table

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Mapping, Sequence
    from typing import TypeAlias

    Figures: TypeAlias = Mapping[str, object]

AGAIN_S = 2.0  # seconds between two pages; the figures cover the last minute anyway
_CLEAR = "\x1b[H\x1b[2J"


def add_to(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], file: argparse.ArgumentParser
) -> None:
    text = "Show what the running updater spends, how stale reads are, and what other budgets would give."
    parser = commands.add_parser(
        "freshness", parents=[file], help="show how fresh reads are, and at what price", description=text
    )
    parser.add_argument("--watch", action="store_true", help="print it again every 2 seconds, until Ctrl-C")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text", help="default: text")
    parser.set_defaults(command=freshness)


def freshness(args: argparse.Namespace, environ: Mapping[str, str]) -> int:
    from cacheupdater.cli.configured import needed

    address = address_of(args.config, needed(args, environ, "admin").admin)
    page = partial(_json, indent=None if args.watch else 2) if args.output == "json" else _page
    print(page(_asked(address)), flush=True)
    if args.watch:
        between = _between(args.output)
        with suppress(KeyboardInterrupt):
            while True:
                time.sleep(AGAIN_S)
                print(between + page(_asked(address)), flush=True)
    return exits.OK


def _between(output: str) -> str:
    """What stands between two pages: a program that follows them gets a line of JSON for each."""
    if output == "json":
        return ""
    return _CLEAR if sys.stdout.isatty() else "\n"


def _json(said: Figures, indent: int | None) -> str:
    return json.dumps(said, indent=indent, ensure_ascii=False)


def _page(said: Figures) -> str:
    from cacheupdater.errors import Misconfigured

    first, sources = list(_first(said)), _many(said, "sources")
    if not sources:
        if first:
            print("\n".join(first))
        raise Misconfigured(
            "every namespace is refreshed at a fixed interval, so there is no price to show;"
            " leave out `every`, or write `refresh: {policy: price}`"
        )
    return "\n".join([*first, *_lines(sources)])


def _asked(address: str) -> Figures:
    """The updater's page, checked for its parts."""
    from cacheupdater.errors import Unavailable

    said = asked(address, "/freshness")
    try:
        for each in ("sources", "warnings", "read_ages"):
            _many(said, each)
        said["sources"]
    except (KeyError, TypeError) as e:
        raise Unavailable(f"{address} answers, but not as an updater: is it the right address?") from e
    return said


def _first(said: Figures) -> Iterable[str]:
    """The warnings, and how old values are when they are read. An updater of another version may give neither."""
    for each in _many(said, "warnings"):
        about = f"{each['event']} {each['subject']}".rstrip()
        worker = f" (worker {each['worker']})" if "worker" in each else ""
        yield f"WARNING  {about}{worker} for {number(_float(each, 'seconds'))} s: {each['text']}"
    if feeds := _many(said, "feeds"):
        yield from table(("FEED", "OF SOURCE", "READ HERE", "SPOKE", "LAG", "WAITING"), map(_feed, feeds))
        yield ""
    if ages := _many(said, "read_ages"):
        yield from table(("AGE WHEN READ", "MEDIAN", "95 % BELOW", "LOOKS IN A MINUTE"), map(_age, ages))
        yield ""


def _age(one: Figures) -> Sequence[str]:
    median, most = (f"{_float(one, name):.3g} s" for name in ("median", "p95"))
    return str(one["name"]), median, most, str(one["looks"])


def _feed(one: Figures) -> Sequence[str]:
    """A feed that another updater reads says nothing here."""
    spoke = "-" if one["spoke_s"] is None else f"{number(_float(one, 'spoke_s'))} s ago"
    lag = "-" if one["lag_s"] is None else f"{1000 * _float(one, 'lag_s'):.3g} ms"
    waiting = "-" if one["waiting"] is None else number(_float(one, "waiting"))
    return str(one["kind"]), str(one["source"]), "yes" if one["reads"] else "no", spoke, lag, waiting


def _lines(sources: Sequence[Figures]) -> Iterable[str]:
    header = (
        "SOURCE",
        "BUDGET",
        "USED",
        "UNNEEDED",
        "PRICE",
        "TARGET",
        "STALE AT HALF",
        "AT BUDGET",
        "AT TWICE",
    )
    yield from table(header, map(_source, sources))
    yield ""
    figures = ("", "READS/S", "STALE", "MEASURED", "USEFUL", "KEYS", "STARVED", "THEIR READS", "OVER AGE/S")
    yield from table(figures, (row for each in sources for row in _rows(each)))
    yield ""
    gains = ("SOURCE", "LEAST GAIN", "WOULD SPEND", "STALE")
    yield from table(gains, (row for each in sources for row in _gains(each)))


def _source(one: Figures) -> Sequence[str]:
    outlooks = [percent(_float(each, "stale")) for each in _many(one, "outlook")]
    return (
        str(one["name"]),
        f"{number(_float(one, 'budget'))}{'ms' if one['unit'] == 'ms' else ''}/s",
        percent(_float(one, "used")),
        percent(_float(one, "unneeded")),
        f"{_float(one, 'price'):.3g}",
        "-" if one["target"] is None else percent(_float(one, "target")),
        *(outlooks or ["-"] * 3),
    )


def _gains(one: Figures) -> Iterable[Sequence[str]]:
    for each in _many(one, "gains"):
        least = _float(each, "least_gain")
        yield (
            str(one["name"]),
            f"{least:g}{' (now)' if least == _float(one, 'least_gain') else ''}",
            f"{number(_float(each, 'spent'))}{'ms' if one['unit'] == 'ms' else ''}/s",
            percent(_float(each, "stale")),
        )


def _rows(one: Figures) -> Iterable[Sequence[str]]:
    yield _figures(str(one["name"]), one)
    for each in _many(one, "namespaces"):
        yield _figures(f"  {each['name']}", each)


def _figures(name: str, one: Figures) -> Sequence[str]:
    return (
        name,
        number(_float(one, "reads")),
        percent(_float(one, "stale_estimated")),
        _measured(one),
        "-" if one["useful"] is None else percent(_float(one, "useful")),
        number(_float(one, "learned")),
        number(_float(one, "starved")),
        percent(_float(one, "starved_reads")),
        number(_float(one, "over_age")),
    )


def _measured(one: Figures) -> str:
    if one["stale_measured"] is None:
        return "-"
    share, low, high = (percent(_float(one, f"stale_measured{each}")) for each in ("", "_low", "_high"))
    return f"{share} ({low} to {high}, {one['draws']} draws)"


def _float(one: Figures, name: str) -> float:
    return float(str(one[name]))


def _many(one: Figures, name: str) -> Sequence[Figures]:
    found = one.get(name, [])
    if not isinstance(found, list):
        raise TypeError(name)
    return found
