"""`cacheupdater record`: listens for a minute in place of the updater, and writes down the reads and a sample of changes."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from cacheupdater.cli import exits

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cacheupdater.recording.recording import Recording

_SECONDS_MIN, _SECONDS_MAX = (
    1.0,
    3600.0,
)  # a shorter recording tells nothing; an hour without refreshes is long


def add_to(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], file: argparse.ArgumentParser
) -> None:
    text = (
        "Listen instead of the updater, refresh nothing, and record how often keys are read and, of a small sample,"
        " how often they change. For `cacheupdater plan`."
    )
    parser = commands.add_parser(
        "record", parents=[file], help="record a minute of reads, for plan", description=text
    )
    parser.add_argument(
        "--for",
        metavar="TIME",
        dest="seconds",
        type=_duration,
        default=60.0,
        help="how long, such as 60s or 5m (default: 60s)",
    )
    parser.add_argument("-o", "--output", metavar="FILE", required=True, help="where to write the recording")
    parser.set_defaults(command=record)


def record(args: argparse.Namespace, environ: Mapping[str, str]) -> int:
    import asyncio

    from cacheupdater.cli import logs
    from cacheupdater.cli.configured import configured
    from cacheupdater.cli.workplace import look_last
    from cacheupdater.errors import Misconfigured
    from cacheupdater.recording.recording import encode
    from cacheupdater.service.record import record as recorded

    config = configured(args, environ)
    logs.configure("warning", sys.stderr)
    look_last()  # for Python loaders, as in `run`
    output = Path(args.output)
    part = output.with_name(output.name + ".part")
    try:
        # opened before the recording, so that it fails early; made anew, for a link there may lead to another file
        part.unlink(missing_ok=True)
        with part.open("xb") as file:
            recording = asyncio.run(recorded(config, args.seconds, ready=_say_ready, say=_say))
            file.write(encode(recording))
        part.replace(output)
    except OSError as e:
        raise Misconfigured(f"{output} cannot be written: {e.strerror or e}") from e
    finally:
        part.unlink(missing_ok=True)
    print(_summary(recording, args.output))
    return exits.OK


def _summary(recording: Recording, file: str) -> str:
    reads = sum(times * keys for each in recording.spaces for times, keys in each.keys.items())
    keys = sum(sum(each.keys.values()) for each in recording.spaces)
    sample = [watched for each in recording.spaces for watched in each.sample]
    return (
        f"{file}: {reads:,} reads of {keys:,} keys in {recording.seconds:g}s,"
        f" and {len(sample):,} keys watched for changes"
    )


def _say_ready(where: str) -> None:
    print(f"ready {where}", flush=True)


def _say(what: str) -> None:
    print(f"cacheupdater: {what}", file=sys.stderr)


def _duration(text: str) -> float:
    from cacheupdater.config.units import duration

    try:
        seconds = duration(text)
    except ValueError as e:
        raise argparse.ArgumentTypeError(str(e)) from e
    if not _SECONDS_MIN <= seconds <= _SECONDS_MAX:
        raise argparse.ArgumentTypeError(f"must be between {_SECONDS_MIN:g}s and 1h, not {text!r}")
    return seconds
