"""`cacheupdater queue lag | purge`: what waits in the queue that updaters share, and how to throw it away.

For an operator. Neither command needs a running updater, and neither becomes a member, so no partition moves. `lag` changes
nothing. `purge` removes the values of changed keys first, and asks before it does anything unless `--yes` is given.
"""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING

from cacheupdater.cli import exits

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Mapping, Sequence

    from cacheupdater.config import Config
    from cacheupdater.config.queues import QueueConfig
    from cacheupdater.service.purge import Purged
    from cacheupdater.service.waiting import Behind

TELL_EVERY_S = 5.0  # seconds between two lines about a long purge
# without its namespace a changed key would be a stranger, and keep its old value
WHOLE = "`queue purge` needs the whole file, to know the keys whose values it must remove"
SHOWN = 10  # partitions that were not purged and have a line each

LAGS = "Print what waits in the queue that updaters share: packs, owner and age, for each partition that is behind."
PURGES = (
    "Throw away the hints that wait in the queue that updaters share. The values of keys with a waiting change are removed"
    " from Redis first, so no reader is left with an old value. Updaters may run meanwhile."
)


def add_to(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], file: argparse.ArgumentParser
) -> None:
    text = "See what waits in the queue that updaters share, or throw it away."
    parser = commands.add_parser("queue", help="what waits in a shared queue", description=text)
    verbs = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    lagging = verbs.add_parser("lag", parents=[file], help="what waits, and for whom", description=LAGS)
    lagging.add_argument("-o", "--output", choices=("text", "json"), default="text", help="default: text")
    lagging.set_defaults(command=lag)
    purging = verbs.add_parser("purge", parents=[file], help="throw it away", description=PURGES)
    purging.add_argument("--yes", action="store_true", help="do not ask")
    purging.set_defaults(command=purge)


def lag(args: argparse.Namespace, environ: Mapping[str, str]) -> int:
    from cacheupdater.cli.configured import needed

    found = _behind(needed(args, environ, "queue").queue)
    if args.output == "json":
        print(json.dumps([each._asdict() for each in found], indent=2))
    else:
        from cacheupdater.config.units import printable

        print("\n".join(map(printable, _page(found))))
    return exits.OK


def _behind(queue: QueueConfig) -> Sequence[Behind]:
    import asyncio
    import logging

    from cacheupdater.service.waiting import behind

    logging.getLogger().addHandler(logging.NullHandler())  # the error says what a driver would log
    return asyncio.run(behind(queue, int(time.time() * 1000)))  # noqa: TID251  hints carry the time of day


def _page(found: Sequence[Behind]) -> Iterable[str]:
    from cacheupdater.cli.tables import number, table

    if not found:
        yield "nobody has used this queue yet"
        return
    late = [each for each in found if each.packs]
    if not late:
        yield f"nothing waits in {_counted(len(found), 'partition')}"
        return
    apart = any(each.urgent is not None for each in late)
    rows = [
        (
            str(each.partition),
            f"{each.packs:,}",
            *([f"{each.urgent or 0:,}"] if apart else []),
            "-" if each.age is None else f"{number(each.age)} s",
            each.owner or "-",
        )
        for each in late
    ]
    yield from table(("PARTITION", "PACKS", *(["URGENT"] if apart else []), "OLDEST", "OWNER"), rows)
    packs = sum(each.packs for each in late)
    yield f"{_counted(packs, 'pack')} in {len(late)} of {_counted(len(found), 'partition')}"


def purge(args: argparse.Namespace, environ: Mapping[str, str]) -> int:
    from cacheupdater.cli.configured import whole
    from cacheupdater.config.units import printable

    config = whole(args, environ, WHOLE)
    if not args.yes and not sys.stdin.isatty():
        print(
            "cacheupdater: purge throws hints away; nobody can be asked here, so say --yes", file=sys.stderr
        )
        return exits.USAGE
    if not args.yes and not _agreed(config):
        print("nothing was purged")
        return exits.OK
    done = _purged(config)
    print("\n".join(_said(done)), flush=True)
    for partition, why in list(done.kept.items())[:SHOWN]:
        print(f"cacheupdater: partition {partition} was not purged: {printable(why)}", file=sys.stderr)
    if len(done.kept) > SHOWN:
        print(f"cacheupdater: and {len(done.kept) - SHOWN} more", file=sys.stderr)
    return exits.SOFTWARE if done.kept else exits.OK


def _agreed(config: Config) -> bool:
    """Shows what would go, and asks the person at the terminal."""
    print("\n".join(_page(_behind(config.queue))))
    try:
        answer = input("Remove the values of changed keys, and throw all of this away? [y/N] ")
    except EOFError:  # Ctrl-D
        answer = ""
    return answer.strip().lower() in {"y", "yes"}


def _purged(config: Config) -> Purged:
    import asyncio
    import logging
    from contextlib import AsyncExitStack

    from cacheupdater.service.components import Components
    from cacheupdater.service.purge import Purge
    from cacheupdater.service.waiting import waiting_in

    logging.getLogger().addHandler(logging.NullHandler())  # as in `lag`

    async def run() -> Purged:
        async with AsyncExitStack() as stack:
            waiting = waiting_in(config.queue)
            stack.push_async_callback(waiting.close)
            writer = Components(config, stack).writer()
            return await Purge(waiting, writer, list(config.namespaces.values()), tell=_Progress()).run()

    return asyncio.run(run())


class _Progress:
    """Says on stderr how far a long purge is."""

    def __init__(self) -> None:
        self._said = time.monotonic()

    def __call__(self, read: int, of: int) -> None:
        now = time.monotonic()
        if now - self._said >= TELL_EVERY_S:
            self._said = now
            print(f"{read:,} of {of:,} packs read", file=sys.stderr, flush=True)


def _said(done: Purged) -> Iterable[str]:
    packs = done.packs.total()
    kinds = ", ".join(f"{count:,} of {kind}" for kind, count in sorted(done.packs.items()))
    where = _counted(done.partitions, "partition")
    yield f"purged {where}: {_counted(packs, 'pack')}{f' ({kinds})' if kinds else ''}"
    yield f"{_counted(done.removals, 'removal')} of changed keys from Redis"
    if done.foreign:
        yield f"{_counted(done.foreign, 'value')} of changed keys stayed: foreign, as the updater would have left them"
    if done.strangers:
        yield f"{_counted(done.strangers, 'changed key')} of no namespace: their values stayed"


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
