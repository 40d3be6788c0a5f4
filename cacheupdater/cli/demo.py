"""`cacheupdater demo`: reads its arguments and calls `cacheupdater.demo`."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_SECONDS_MIN, _SECONDS_MAX = 1.0, 3600.0  # a shorter demo shows nothing; for longer there is `run`


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    text = "Run a small shop with its own Redis and database, and show cached reads with and without cacheupdater."
    parser = commands.add_parser(
        "demo", help="show it working, with nothing installed or set up", description=text
    )
    parser.add_argument(
        "--duration", metavar="SECONDS", type=_seconds, default=30.0, help="how long (default: 30)"
    )
    parser.add_argument(
        "--seed", metavar="N", type=int, default=1, help="same number, same shoppers (default: 1)"
    )
    parser.add_argument("--plain", action="store_true", help="plain lines instead of a live screen")
    parser.add_argument(
        "--kafka",
        action="store_true",
        help="show another demo: hints go through Kafka to two updaters, and one is killed while you watch",
    )
    parser.set_defaults(command=demo)


def demo(args: argparse.Namespace, _environ: Mapping[str, str]) -> int:
    # the demo's applications are multiprocessing children, whose Python would search the working directory first
    os.environ["PYTHONSAFEPATH"] = "1"  # noqa: TID251  for the children only
    if args.kafka:
        from cacheupdater.demo.group.main import run
    else:
        from cacheupdater.demo.main import run
    return run(duration=args.duration, seed=args.seed, plain=args.plain)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not _SECONDS_MIN <= seconds <= _SECONDS_MAX:
        raise argparse.ArgumentTypeError(
            f"must be a number from {_SECONDS_MIN:g} to {_SECONDS_MAX:g}, not {text!r}"
        )
    return seconds
