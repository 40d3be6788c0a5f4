"""`cacheupdater changes install | remove`: what a feed needs in its database, made or taken away.

For a person who sets a feed up, once; running updaters need none of these rights. `--print` shows the statements to those who
may not run them. `cacheupdater check --connect` says whether anything is missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cacheupdater.cli import exits

if TYPE_CHECKING:
    import argparse
    from collections.abc import AsyncIterator, Mapping

    from cacheupdater.service.installing import Ran, Work

INSTALLS = (
    "Make what the feeds of the file need in their databases: a publication and a slot (replication), or an outbox and triggers"
    " (notify). For poll and debezium there is nothing to make. What is there already stays. Install again after the tables of `changes:` have changed."
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
    from cacheupdater.service import installing

    return _run(args, environ, installing.script if args.print else installing.install)


def remove(args: argparse.Namespace, environ: Mapping[str, str]) -> int:
    from cacheupdater.service import installing

    return _run(args, environ, installing.removal if args.print else installing.remove)


def _run(args: argparse.Namespace, environ: Mapping[str, str], work: Work) -> int:
    import asyncio
    import logging

    from cacheupdater.cli.configured import configured

    logging.getLogger().addHandler(logging.NullHandler())  # the error says what a driver would log
    asyncio.run(_show(work(configured(args, environ))))
    return exits.OK


async def _show(work: AsyncIterator[Ran]) -> None:
    async for ran in work:
        print("\n".join(_said(ran)))


def _said(ran: Ran) -> list[str]:
    """For a person, and for psql: all that is no statement is a comment. The lines of a function stay lines."""
    from cacheupdater.config.units import printable

    if not ran.statements:
        return [f"-- source {ran.source}, {ran.kind}: nothing to do"]
    lines = [line for each in ran.statements for line in f"{each};".split("\n")]
    return [f"-- source {ran.source}, {ran.kind}", *map(printable, lines)]
