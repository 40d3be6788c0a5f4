"""`cacheupdater quarantine list | retry | forget`: the keys that fail by themselves, in the running updater.

For an operator. The command asks the updater at the admin address of the configuration, as `explain` does. In a group each
updater answers for the partitions that it owns.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING
from urllib.parse import quote_from_bytes

from cacheupdater.cli import exits
from cacheupdater.cli.tables import number

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Mapping

    from cacheupdater.config import Config
    from cacheupdater.config.partly import Partly

CALLS_MAX = 10_000  # of `--all`: each changes up to 200 keys, more than a process can hold in quarantine


def add_to(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], file: argparse.ArgumentParser
) -> None:
    text = "Keys that fail by themselves are in quarantine for a minute: list them, try them at once, or forget them."
    parser = commands.add_parser("quarantine", help="keys that fail by themselves", description=text)
    verbs = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    listing = verbs.add_parser("list", parents=[file], help="list them, with their errors")
    listing.add_argument("namespace", metavar="NAMESPACE", nargs="?", help="only of this namespace")
    listing.add_argument("-o", "--output", choices=("text", "json"), default="text", help="default: text")
    listing.set_defaults(command=list_)
    for name, what, done in (
        ("retry", "make them due now, each alone", "retried"),
        ("forget", "let their next hints try again", "forgotten"),
    ):
        verb = verbs.add_parser(name, parents=[file], help=what)
        which = verb.add_mutually_exclusive_group(required=True)
        which.add_argument("keys", metavar="KEY", nargs="*", default=[], help="such as product:7")
        which.add_argument("--all", action="store_true", help="all that the updater has in quarantine")
        verb.set_defaults(command=change, verb=name, done=done)


def list_(args: argparse.Namespace, environ: Mapping[str, str]) -> int:
    from cacheupdater.cli.configured import needed, of_namespace

    if args.namespace is None:
        config, query = needed(args, environ, "admin"), ""
    else:
        config = of_namespace(args, environ, args.namespace, "admin")
        query = f"?namespace={_quoted(args.namespace)}"
    said = _asked(args.config, config, f"/quarantine{query}")
    if args.output == "json":
        print(json.dumps(said, indent=2))
    else:
        from cacheupdater.config.units import printable

        print("\n".join(map(printable, _page(said))))
    return exits.OK


def _page(said: Mapping[str, object]) -> Iterable[str]:
    """A line per key: its error comes last, for it may be long."""
    keys = said["keys"]
    assert isinstance(keys, list)
    for each in keys:
        until = f"for {number(each['left'])} s more" if each["left"] else "until its next hint"
        times = f"since {number(each['since'])} s, {until}"
        yield f"{each['key']}  {each['namespace'] or '-'}  {times}: {each['error']}"
    if said["total"] != len(keys):
        yield f"and {int(str(said['total'])) - len(keys)} more"
    if not keys:
        yield "no key is in quarantine"


def change(args: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """`retry` and `forget`."""
    from cacheupdater.cli.configured import needed

    config = needed(args, environ, "admin")
    page = f"/quarantine/{args.verb}"
    if args.all:
        print(f"{args.done} {_all(args.config, config, page)}")
        return exits.OK
    changed = 0
    for key in args.keys:
        said = _asked(args.config, config, f"{page}?key={_quoted(key)}", method="POST")
        changed += bool(said["done"])
        if not said["done"]:
            why = (
                "its namespace is paused" if said["paused"] else "this updater does not have it in quarantine"
            )
            print(f"cacheupdater: {key} was not {args.done}: {why}", file=sys.stderr)
    print(f"{args.done} {changed} of {len(args.keys)}")
    return exits.OK if changed == len(args.keys) else exits.SOFTWARE


def _all(file: str, config: Config | Partly, page: str) -> int:
    """How many keys were changed. A key that fails again meanwhile comes back only after all of its tries."""
    changed = 0
    for _ in range(CALLS_MAX):
        said = _asked(file, config, f"{page}?all=1", method="POST")
        changed += int(str(said["done"]))
        if not said["left"] or not said["done"]:
            break
    return changed


def _asked(file: str, config: Config | Partly, page: str, *, method: str = "GET") -> Mapping[str, object]:
    from cacheupdater.cli.asking import address_of, asked

    return asked(address_of(file, config.admin), page, token=config.admin_token, method=method)


def _quoted(text: str) -> str:
    return quote_from_bytes(text.encode("utf-8", "surrogateescape"), safe="")
