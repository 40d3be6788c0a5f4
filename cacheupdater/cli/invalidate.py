"""`cacheupdater invalidate KEY…`: removes values by hand, behind the fence, so that no load under way brings an old value back.

For an operator in an emergency. The command needs no running updater. The next read of a removed key is a miss, which a
running updater serves.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from cacheupdater.cli import exits

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from cacheupdater.config import Config

UNSAID = "it is not checked whether a namespace has these keys"
NOBODYS = "is of no namespace, so no updater fills it again: is it spelled as in Redis?"


def add_to(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], file: argparse.ArgumentParser
) -> None:
    text = "Remove the values of these keys from Redis, as the client's `invalidate` does. Foreign values go too."
    parser = commands.add_parser(
        "invalidate", parents=[file], help="remove values by hand, fenced", description=text
    )
    parser.add_argument("keys", metavar="KEY", nargs="+", help="as it is in Redis, such as product:7")
    parser.set_defaults(command=invalidate)


def invalidate(args: argparse.Namespace, environ: Mapping[str, str]) -> int:
    import asyncio

    from cacheupdater.cli.configured import needed
    from cacheupdater.config.partly import Partly
    from cacheupdater.service.look import removed

    config = needed(args, environ, "cache", unsaid=UNSAID)
    keys = [key.encode("utf-8", "surrogateescape") for key in args.keys]
    if not isinstance(config, Partly):
        _name_nobodys(config, keys)
    kept = asyncio.run(removed(config.cache, keys))
    for key, why in kept.items():
        _say(key, f"was not removed: {why}")
    # the fence does not tell whether a value stood there
    print(f"invalidated {len(keys) - len(kept)} of {len(keys)} in {config.cache}")
    return exits.SOFTWARE if kept else exits.OK


def _name_nobodys(config: Config, keys: Sequence[bytes]) -> None:
    """They are removed all the same: no more than a person's spelling depends on a namespace here."""
    from cacheupdater.service.whose import full, nobodys

    for key in nobodys(config.namespaces, keys):
        named = full(config.namespaces, key)
        _say(key, f"{NOBODYS} In Redis it is {named.decode()}" if named else NOBODYS)


def _say(key: bytes, what: str) -> None:
    print(f"cacheupdater: {key.decode(errors='backslashreplace')} {what}", file=sys.stderr)
