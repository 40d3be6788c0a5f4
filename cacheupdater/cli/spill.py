"""The arguments of `cacheupdater collect` about its spill: read into `core.spilling.Limits`, and written for the second start.

`cli.collect` calls these functions once each, before the collector is made. A wrong value is a mistake of usage; an option
without `--spill` is one of the configuration, for it would do nothing.
"""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING

from cacheupdater_client.protocol import durations
from cacheupdater_client.protocol.durations import NUMBER

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cacheupdater.core.spilling import Limits

_MIB = 1024 * 1024
_SIZE = re.compile(r"([0-9]{1,9})(MiB|GiB)")
_RATE = re.compile(rf"({NUMBER})/s")
_KINDS = {"changes": "changes_s", "misses": "misses_s", "touches": "touches_s"}


def add_to(parser: argparse.ArgumentParser) -> None:
    """The arguments."""
    parser.add_argument(
        "--spill",
        metavar="DIR",
        help="keep hints in this directory while the queue is away; only this user may enter it (default: hints wait in memory)",
    )
    parser.add_argument(
        "--spill-keep",
        nargs="+",
        type=_kept,
        metavar="KIND=TIME",
        help="how long hints of a kind are kept there (default: changes=1h misses=30s touches=30s)",
    )
    parser.add_argument(
        "--spill-size",
        type=_size,
        metavar="SIZE",
        help="how much is kept there, such as 1GiB; then the oldest touches are dropped, and changes last (default: 256MiB)",
    )
    parser.add_argument(
        "--spill-rate",
        type=_rate,
        metavar="RATE",
        help="how fast it is sent once the queue is back, in keys (default: 5000/s)",
    )


def limits(args: argparse.Namespace) -> Limits:
    """What the arguments say. Raises Misconfigured."""
    from cacheupdater.core.spilling import Limits
    from cacheupdater.errors import Misconfigured

    said = dict(args.spill_keep or ())
    if args.spill_size is not None:
        said["size"] = args.spill_size
    if args.spill_rate is not None:
        said["rate"] = args.spill_rate
    if said and args.spill is None:
        raise Misconfigured("--spill-keep, --spill-size and --spill-rate need --spill with a directory")
    return Limits(**said)


def again(spill: str | None, its: Limits) -> Iterable[str]:
    """The same arguments for another start."""
    if spill is None:
        return ()
    kept = [f"{kind}={getattr(its, field):.3f}s" for kind, field in _KINDS.items()]
    return (
        *("--spill", spill, "--spill-keep", *kept),
        *("--spill-size", f"{its.size // _MIB}MiB", "--spill-rate", f"{its.rate:.3f}/s"),
    )


def _kept(text: str) -> tuple[str, float]:
    kind, _, time = text.partition("=")
    seconds = durations.parsed(time)
    if kind not in _KINDS or not seconds:
        raise argparse.ArgumentTypeError(
            f"{text!r} must be changes, misses or touches, then = and {durations.FORM}, above zero"
        )
    return _KINDS[kind], seconds


def _size(text: str) -> int:
    from cacheupdater.core.spilling import SIZE_MIN

    match = _SIZE.fullmatch(text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} must be a size such as 256MiB or 1GiB")
    size = int(match[1]) * (_MIB if match[2] == "MiB" else 1024 * _MIB)
    if size < SIZE_MIN:
        raise argparse.ArgumentTypeError(f"must be at least {SIZE_MIN // _MIB}MiB: a turn's hints must fit")
    return size


def _rate(text: str) -> float:
    match = _RATE.fullmatch(text)
    if match is None or float(match[1]) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} must be keys a second such as 5000/s, at least 1/s")
    return float(match[1])
