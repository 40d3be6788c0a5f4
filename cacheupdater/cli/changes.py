"""`cacheupdater changes install | remove`: what a feed needs in its database, made or taken away.

For a person who sets a feed up, once; running updaters need none of these rights. `--print` shows the statements to those who
may not run them. At its end `install` says what is left to a person, as `cacheupdater check --connect` does: an index, a server's
setting, what the feed cannot see.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from cacheupdater.cli import exits

if TYPE_CHECKING:
    import argparse
    from collections.abc import AsyncIterator, Iterable, Iterator, Mapping

    from cacheupdater.config import Config
    from cacheupdater.feed_ports import Lack
    from cacheupdater.service.installing import Told

T = TypeVar("T")

INSTALLS = (
    "Make what the feeds of the file need in their databases: a publication and a slot (replication), or an outbox and triggers"
    " (notify). For poll and debezium nothing is made. What is there already stays. At the end, name what is still missing (exit code 78 if a"
    " feed cannot be read without it). Install again after the tables of `changes:` have changed."
)
REMOVES = "Remove all that install has made. Stop the updaters first, or they complain."


def add_to(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], file: argparse.ArgumentParser
) -> None:
    text = "Prepare databases to tell their changes, or undo it."
    parser = commands.add_parser("changes", help="what feeds need in their databases", description=text)
    verbs = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for verb, command, said, text in (
        ("install", install, "make it", INSTALLS),
        ("remove", remove, "remove it", REMOVES),
    ):
        each = verbs.add_parser(verb, parents=[file], help=said, description=text)
        each.add_argument("--print", action="store_true", help="show the statements, and run none")
        each.set_defaults(command=command)


def install(args: argparse.Namespace, environ: Mapping[str, str]) -> int:
    import asyncio

    from cacheupdater.service import installing

    config = _configured(args, environ)
    if args.print:
        return asyncio.run(_show(installing.script(config)))
    return asyncio.run(_install(config))


def remove(args: argparse.Namespace, environ: Mapping[str, str]) -> int:
    import asyncio

    from cacheupdater.service import installing

    work = installing.removal if args.print else installing.remove
    return asyncio.run(_show(work(_configured(args, environ))))


def _configured(args: argparse.Namespace, environ: Mapping[str, str]) -> Config:
    import logging

    from cacheupdater.cli.configured import configured

    logging.getLogger().addHandler(logging.NullHandler())  # the error says what a driver would log
    return configured(args, environ)


async def _install(config: Config) -> int:
    """The exit code is that of `check --connect`: a person must act if a feed cannot be read."""
    from cacheupdater.service import installing

    await _show(installing.install(config), nothing="nothing was made")
    grave = False
    async for told in installing.lacks(config):
        print("\n".join(_lacking(told)))
        grave |= any(lack.grave for lack in told.what)
    return exits.CONFIG if grave else exits.OK


async def _show(work: AsyncIterator[Told[str]], *, nothing: str = "nothing to do") -> int:
    async for told in work:
        about = _about(told)
        print("\n".join([about, *_lines(told.what)] if told.what else [f"{about}: {nothing}"]))
    return exits.OK


def _lacking(told: Told[Lack]) -> Iterator[str]:
    """What is missing, and below it, the statements that mend it."""
    from cacheupdater.config.units import printable
    from cacheupdater.service.findings import plain

    if not any(lack.grave for lack in told.what):
        yield f"{_about(told)}: can be read"
    for lack in told.what:
        yield f"{_about(told)}, {'wrong' if lack.grave else 'note'}: {printable(plain(lack.what))}"
        yield from (f"--   {line}" for line in _lines(lack.sql))


def _about(told: Told[T]) -> str:
    """For psql, all but the statements is a comment."""
    return f"-- source {told.source}, {told.kind}"


def _lines(statements: Iterable[str]) -> list[str]:
    """The lines of a function stay lines."""
    from cacheupdater.config.units import printable

    return [printable(line) for each in statements for line in f"{each};".split("\n")]
