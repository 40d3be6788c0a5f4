"""The command line: reads the arguments, calls one command, and turns an error into an exit code and a next step.

Each command is a module with `add_to(commands)`. A command imports its heavy modules (pydantic, SQLAlchemy, redis) when it
runs, so that `--help` answers at once. Only this package and `config` read the environment.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from typing import TYPE_CHECKING

from cacheupdater import __version__, masking, packages
from cacheupdater.cli import (
    changes,
    check,
    collect,
    configured,
    demo,
    exits,
    explain,
    freshness,
    invalidate,
    last_words,
    pause,
    plan,
    quarantine,
    queue,
    reader,
    record,
    reload,
    run,
    schema,
    topic,
)
from cacheupdater.errors import CacheUpdaterError, Misconfigured

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Command = Callable[[argparse.Namespace, Mapping[str, str]], int]


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command. Returns an exit code of `exits`."""
    return reader.kept(lambda: _main(argv))


def _main(argv: Sequence[str] | None) -> int:
    environ = os.environ  # noqa: TID251  the only place that reads the process' environment
    last_words.heard()
    parser = _parser(environ)
    try:
        args = parser.parse_args(argv)
    except SystemExit as e:  # argparse has printed: help and version end with 0, bad usage with 2
        return e.code if isinstance(e.code, int) else exits.USAGE
    if args.command is None:
        parser.print_help(sys.stderr)
        return exits.USAGE
    return _run(args.command, args, environ)


def _run(command: Command, args: argparse.Namespace, environ: Mapping[str, str]) -> int:
    try:
        return command(args, environ)
    except Misconfigured as e:
        return _failed(exits.CONFIG, str(e))
    except ModuleNotFoundError as e:
        module = (e.name or "").partition(".")[0]
        wanted = packages.lacking(module)
        if wanted is None:
            raise
        whole = ", and the updater needs more packages" if module in packages.OF_UPDATERS else ""
        return _failed(exits.CONFIG, f"{e.name} is not installed{whole}; run: pip install {wanted}")
    except KeyboardInterrupt:
        return _failed(exits.SIGNALLED + signal.SIGINT, "interrupted")
    except CacheUpdaterError as e:
        return _failed(exits.SOFTWARE, str(e))


def _parser(environ: Mapping[str, str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="cacheupdater",
        description="Keeps the values in your Redis cache fresh, so that the application does not have to.",
        epilog="Exit codes: 0 done, 2 bad usage, 70 failed inside (start it again), 75 a queue is not drained yet, 78 bad configuration.",
    )
    parser.add_argument("--version", action="version", version=f"cacheupdater {__version__}")
    parser.set_defaults(command=None)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    file = argparse.ArgumentParser(add_help=False)
    configured.add_to(file, environ)
    run.add_to(commands, file)
    collect.add_to(commands, environ)
    check.add_to(commands, file)
    changes.add_to(commands, file)
    explain.add_to(commands, file)
    invalidate.add_to(commands, file)
    pause.add_to(commands, file)
    quarantine.add_to(commands, file)
    queue.add_to(commands, file)
    reload.add_to(commands, file)
    freshness.add_to(commands, file)
    record.add_to(commands, file)
    plan.add_to(commands)
    topic.add_to(commands, file)
    schema.add_to(commands)
    demo.add_to(commands)
    return parser


def _failed(code: int, why: str) -> int:
    why = masking.text(why)
    print(f"cacheupdater: {why}" if "\n" not in why else why, file=sys.stderr)
    return code
