"""`cacheupdater reload`: the running updater reads its file now, and says what has changed. `--dry-run` says it before.

For an operator. Both ask the updater at its admin address, as `explain` does. The dry run compares the file of this command with what
the updater uses, and changes nothing; that file may stand anywhere. Passwords are compared and not shown.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from cacheupdater.cli import exits

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from cacheupdater.config import Config
    from cacheupdater.config.partly import Partly, SectionName
    from cacheupdater.config.spelled import Spelled
    from cacheupdater.service.preview import Change, Preview

SALT_BYTES = 16
CELL_MAX = 60  # characters of a value in a line; `-o json` shows all


def add_to(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], file: argparse.ArgumentParser
) -> None:
    text = (
        "Make the running updater read its own file now, and say what has changed, or why nothing has. With --dry-run,"
        " say what this command's FILE would change, and change nothing."
    )
    parser = commands.add_parser("reload", parents=[file], help="change the configuration", description=text)
    parser.add_argument("--dry-run", action="store_true", help="compare FILE with what the updater uses")
    parser.add_argument(
        "--admin", metavar="HOST:PORT", help="where the updater answers (default: admin.listen of FILE)"
    )
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text", help="default: text")
    parser.set_defaults(command=reload)


def reload(args: argparse.Namespace, environ: Mapping[str, str]) -> int:
    from cacheupdater.cli.asking import address_of
    from cacheupdater.cli.configured import configured, needed
    from cacheupdater.cli.workplace import look_last
    from cacheupdater.service.refusals import refusals

    needs: tuple[SectionName, ...] = () if args.admin else ("admin",)  # with an address, only for its token

    def updater(found: Config | Partly) -> _Updater:
        return _Updater(args.admin or address_of(args.config, found.admin), found.admin_token)

    if not args.dry_run:
        return _reload(updater(needed(args, environ, *needs, if_there=["admin"])), args.output)
    look_last()  # for Python loaders, as in `check`
    config = configured(args, environ, further=refusals)
    return _dry_run(config, updater(config), args.output)


def _reload(updater: _Updater, output: str) -> int:
    from cacheupdater.config.units import printable
    from cacheupdater.service.configuration import RELOAD

    outcome = updater.asked(RELOAD, method="POST")
    taken, lines = outcome["taken"], list(map(printable, str(outcome["said"]).splitlines()))
    if output == "json":
        print(json.dumps(outcome, indent=2))
    elif taken:
        print("\n".join(lines))
    else:
        begin = "everything stays as it was" if taken is False else "nobody knows yet"
        print("\n".join([f"cacheupdater: {begin}:", *lines]), file=sys.stderr)
    if taken is None:
        return exits.SOFTWARE
    return exits.OK if taken else exits.RESTART if outcome["restart"] else exits.CONFIG


def _dry_run(config: Config, updater: _Updater, output: str) -> int:
    from cacheupdater.config.spelled import spelled
    from cacheupdater.config.units import printable
    from cacheupdater.service.difference import reformed
    from cacheupdater.service.preview import preview, uncertain

    read = spelled(config)
    shown, running = {name: each.shown for name, each in read.items()}, updater.settings()
    unlike = updater.unlike({name: read[name] for name in uncertain(running, shown)})
    found = preview(running, shown, unlike)
    forms = reformed(found.changed, config.namespaces)
    print(_json(found, forms) if output == "json" else "\n".join(map(printable, _page(found, forms))))
    return exits.RESTART if found.restart else exits.OK


class _Updater:
    """The running one."""

    def __init__(self, address: str, token: str | None) -> None:
        self._address = address
        self._token = token

    def asked(self, page: str, *, method: str = "GET") -> Mapping[str, object]:
        from cacheupdater.cli import asking

        return asking.asked(
            self._address, page, token=self._token, method=method, within=asking.PATIENT_ANSWER_S
        )

    def settings(self) -> dict[str, str]:
        from cacheupdater.service.configuration import SETTINGS

        said = self.asked(SETTINGS)["settings"]
        assert isinstance(said, dict)
        return said

    def unlike(self, settings: Mapping[str, Spelled]) -> set[str]:
        """Those that the updater has with another text, passwords included. No password is sent."""
        import secrets

        from cacheupdater.config.spelled import digest
        from cacheupdater.service.configuration import SAME, SAME_MAX

        salt, names, unlike = secrets.token_hex(SALT_BYTES), list(settings), set[str]()
        for at in range(0, len(names), SAME_MAX):
            some = names[at : at + SAME_MAX]
            digests = (f"{name}={digest(settings[name].whole, salt.encode())}" for name in some)
            said = self.asked(f"{SAME}?salt={salt}&{'&'.join(digests)}")["same"]
            assert isinstance(said, dict)
            unlike |= {name for name in some if not said[name]}
        return unlike


def _page(found: Preview, forms: Sequence[str]) -> Iterable[str]:
    """A line per change. What needs a restart comes last, with what follows from it."""
    from cacheupdater.service.difference import warnings

    yield from (f"added    {each}" for each in found.added)
    yield from _changes("changed", found.changed)
    yield from (f"removed  {each}" for each in found.removed)
    yield from _changes("restart", found.restart)
    yield from (f"warning  {each}" for each in warnings(forms))
    if found.restart:
        names = ", ".join(each.setting for each in found.restart)
        yield f"{names}: needs a restart. A reload changes nothing, and the updater stays as it is."
    elif any(found):
        yield "All of this changes while the updater runs."
    else:
        yield "no change"


def _changes(what: str, changes: Iterable[Change]) -> Iterator[str]:
    for each in changes:
        hidden = "  (what is hidden differs)" if each.was == each.now else ""
        yield f"{what}  {each.setting}: {_cell(each.was)} -> {_cell(each.now)}{hidden}"


def _cell(text: str | None) -> str:
    if text is None:
        return "not set"
    return text if len(text) <= CELL_MAX else f"{text[:CELL_MAX]}…"


def _json(found: Preview, forms: Sequence[str]) -> str:
    changes = {part: [each._asdict() for each in getattr(found, part)] for part in ("changed", "restart")}
    return json.dumps({**found._asdict(), **changes, "forms": forms}, indent=2)
