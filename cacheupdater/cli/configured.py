"""The configuration of a command: from a file (`-c`), from an application's declarations (`--app`), or from both.

Every command that takes `-c` calls `configured`, or `needed`, if it is an operator's: such a command must work beside a running
updater, whatever mistake somebody has written into a namespace meanwhile. With `--app`, the working directory is searched for the
application's modules, and the application's own clients emit nothing in this process: an updater must not send hints to itself.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from cacheupdater.errors import Misconfigured

if TYPE_CHECKING:
    import argparse
    from collections.abc import Collection, Mapping

    from cacheupdater.config import Config, ConfigErrors
    from cacheupdater.config.declared import Application
    from cacheupdater.config.load import Further
    from cacheupdater.config.partly import Partly, SectionName

USUAL = "cacheupdater.yaml"


class Unsaid(str):
    """The file's usual name, which nobody has said: with `--app` it may be missing."""

    __slots__ = ()


def add_to(parser: argparse.ArgumentParser, environ: Mapping[str, str]) -> None:
    """Adds `-c` and `--app`."""
    add_file_to(parser, environ)
    parser.add_argument(
        "--app",
        metavar="MODULE:CACHE",
        help="take the values that this cacheupdater_client.Cache declares; a file is not needed, and may add and override",
    )


def add_file_to(parser: argparse.ArgumentParser, environ: Mapping[str, str]) -> None:
    """Adds `-c`."""
    parser.add_argument(
        "-c",
        "--config",
        metavar="FILE",
        default=environ.get("CACHEUPDATER_CONFIG") or Unsaid(USUAL),
        help=f"the configuration (default: $CACHEUPDATER_CONFIG, else {USUAL})",
    )


def configured(
    args: argparse.Namespace, environ: Mapping[str, str], *, further: Further | None = None
) -> Config:
    """Raises Misconfigured."""
    from cacheupdater.config import load_config

    return load_config(file_of(args), environ, app=_application(args, environ), further=further)


def whole(args: argparse.Namespace, environ: Mapping[str, str], who: str) -> Config:
    """The configuration of a command that would be wrong with a part of it. The error begins with `who`, and why."""
    from cacheupdater.config import ConfigErrors

    try:
        return configured(args, environ)
    except ConfigErrors as e:
        raise _refused(e, who) from e


def needed(
    args: argparse.Namespace,
    environ: Mapping[str, str],
    *sections: SectionName,
    if_there: Collection[SectionName] = (),
    unsaid: str = "",
) -> Config | Partly:
    """The configuration of a command that needs these sections; of a file that is refused, these alone, and stderr says so.

    `if_there` are sections that it takes too, where the file has them. `unsaid` is what the command then leaves out.
    Raises Misconfigured if one of the sections is wrong.
    """
    from cacheupdater.config.load import load_needed
    from cacheupdater.config.partly import Partly

    found = load_needed(file_of(args), environ, sections, if_there=if_there, app=_application(args, environ))
    if isinstance(found, Partly):
        taken = f"only {' and '.join(found.taken)}" if found.taken else "nothing"
        lacking = f", and {unsaid}" if unsaid else ""
        print(
            f"cacheupdater: the file is refused, so this command takes {taken} from it{lacking}:"
            f" {found.errors.problems[0]}; `cacheupdater check` shows all mistakes",
            file=sys.stderr,
        )
    return found


def refused(partly: Partly, who: str) -> Misconfigured:
    """The error of a command that cannot do without the rest of the file after all. It begins with `who`, and why."""
    return _refused(partly.errors, who)


def _refused(errors: ConfigErrors, who: str) -> Misconfigured:
    if errors.problems[0].place is None:  # there is no file to mend
        return errors
    return Misconfigured(f"{errors}\n{who}: mend it, or name the last good file with -c")


def of_namespace(
    args: argparse.Namespace, environ: Mapping[str, str], name: str, *sections: SectionName
) -> Config | Partly:
    """What a command needs that names this namespace. Raises Misconfigured, also if there is no such namespace."""
    from cacheupdater.config.partly import Partly

    config = needed(args, environ, *sections)
    if name not in config.namespaces:
        if isinstance(config, Partly) and not config.names_all:
            raise refused(
                config, f"this command needs the section `namespaces`, to know whether {name} is one of them"
            )
        known = ", ".join(sorted(config.namespaces))
        raise Misconfigured(f"no namespace is called {name}; there are: {known}")
    return config


def _application(args: argparse.Namespace, environ: Mapping[str, str]) -> Application | None:
    if args.app is None:
        return None
    from cacheupdater.cli.workplace import look_last
    from cacheupdater.service.application import application

    look_last()
    os.environ["CACHEUPDATER_DISABLED"] = "1"  # noqa: TID251  the clients of this process read it when they are made
    return application(args.app, environ)


def file_of(args: argparse.Namespace) -> str | None:
    """The file that the command reads; None if there is none."""
    missing = args.app is not None and isinstance(args.config, Unsaid) and not Path(args.config).exists()
    return None if missing else str(args.config)


def said_by(args: argparse.Namespace) -> str:
    """Where the configuration comes from, for people."""
    return " and ".join(each for each in (args.app, file_of(args)) if each)
