"""`cacheupdater pause NAMESPACE` and `resume NAMESPACE`: a namespace is off before a known peak, and on again after it.

For an operator. The commands write to Redis and need no running updater. Every updater of this cache obeys within about a
second, now and after each restart, until the namespace is resumed.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from cacheupdater.cli import exits

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from cacheupdater.config.secrets import Url
    from cacheupdater.core.pausing import Pause

PAUSES = (
    "Switch a namespace off for every updater of this cache, over restarts, until `resume`. Touches and misses are dropped"
    " with a count, changes still remove their values, and all other values stay."
)
RESUMES = "Switch a paused namespace on again, for every updater of this cache."


def add_to(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], file: argparse.ArgumentParser
) -> None:
    for name, summary, text, command in (
        ("pause", "switch a namespace off for a while", PAUSES, pause),
        ("resume", "switch a paused namespace on again", RESUMES, resume),
    ):
        parser = commands.add_parser(name, parents=[file], help=summary, description=text)
        parser.add_argument("namespace", metavar="NAMESPACE", help="its name in the configuration")
        parser.set_defaults(command=command)


def pause(args: argparse.Namespace, environ: Mapping[str, str]) -> int:
    import asyncio

    from cacheupdater.cli.configured import of_namespace
    from cacheupdater.core.pausing import Pause

    config = of_namespace(args, environ, args.namespace, "cache")
    now = time.time()  # noqa: TID251  for a person who reads the entry
    before = asyncio.run(_noted(config.cache, args.namespace, Pause(_whoami(), now)))
    if before is not None:
        print(f"{args.namespace} was paused already, by {before.by}")
    else:
        print(
            f"{args.namespace} is paused in {config.cache}; every updater of this Redis obeys within about a second,"
            " until `cacheupdater resume`"
        )
    return exits.OK


def resume(args: argparse.Namespace, environ: Mapping[str, str]) -> int:
    import asyncio

    from cacheupdater.cli.configured import of_namespace

    config = of_namespace(args, environ, args.namespace, "cache")
    before = asyncio.run(_noted(config.cache, args.namespace, None))
    if before is None:
        print(f"{args.namespace} was not paused")
    else:
        print(f"{args.namespace} is resumed; {before.by} had paused it")
    return exits.OK


async def _noted(cache: Url, name: str, pause: Pause | None) -> Pause | None:
    """Pauses or resumes. Returns the pause that there was before, which a second `pause` leaves as it is."""
    from cacheupdater.adapters.writer_redis import RedisPauses, writer_for
    from cacheupdater.core.pausing import pause_of

    writer, field = writer_for(cache.reveal()), name.encode()
    port = RedisPauses(writer)
    try:
        entry = (await port.entries()).get(field)
        if pause is None:
            await port.resume(field)
        elif entry is None:
            await port.pause(field, pause.spelled())
        return None if entry is None else pause_of(entry)
    finally:
        await writer.close()


def _whoami() -> str:
    """The person, as far as this machine knows."""
    import getpass
    import socket

    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (OSError, KeyError):  # a container's user may have no name
        return f"somebody@{socket.gethostname()}"
