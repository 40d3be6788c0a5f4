"""`cacheupdater check`: says whether a configuration can work. Contacts nothing without `--connect`.

Prints the settings that would be used, with the defaults merged in, or every problem with its line (exit 78). The problems
include those that only `run` would meet: a driver that is not installed, a loader's module that is missing. With `--connect`,
`check` contacts everything once and names what is wrong (exit 78, or 70 if something is only unreachable now).
"""

from __future__ import annotations

import logging
import sys
from itertools import starmap
from typing import TYPE_CHECKING

from cacheupdater.cli import exits
from cacheupdater.cli.tables import table

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Mapping, Sequence

    from cacheupdater.config import Config, NamespaceSection, SourceSection
    from cacheupdater.config.problems import Path
    from cacheupdater.service.findings import Finding
    from cacheupdater_client.protocol.definitions import Definition


def add_to(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], file: argparse.ArgumentParser
) -> None:
    text = (
        "Check a configuration and print what it amounts to. Contacts nothing and imports no loader,"
        " unless --connect or --app is given."
    )
    parser = commands.add_parser("check", parents=[file], help="check the configuration", description=text)
    parser.add_argument(
        "--connect",
        action="store_true",
        help="contact queue, cache and sources once, call Python loaders with an empty list, and say what is wrong",
    )
    parser.add_argument(
        "--sidecar",
        action="store_true",
        help="also check what `run --sidecar` needs: a fleet",
    )
    parser.set_defaults(command=check)


def check(args: argparse.Namespace, environ: Mapping[str, str]) -> int:
    from cacheupdater.cli.configured import configured, said_by
    from cacheupdater.cli.workplace import look_last
    from cacheupdater.service.refusals import refusals
    from cacheupdater.service.sidecar import unfit_beside_an_application

    look_last()  # for Python loaders, as in `run`

    def further(config: Config) -> Iterable[tuple[Path, str]]:
        yield from refusals(config)
        if args.sidecar:
            yield from unfit_beside_an_application(config)

    config = configured(args, environ, further=further)
    print(f"{said_by(args)}: OK\n")
    print("\n".join(_report(config)), flush=True)
    for warning in config.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    if args.connect:
        return _contacted(config)
    print("\nNothing was contacted: --connect tries queue, Redis, sources and Python loaders once.")
    return exits.OK


def _contacted(config: Config) -> int:
    """Prints the findings. The exit code says whether a person must act (78) or something is unreachable now (70)."""
    import asyncio

    from cacheupdater.service.connection_check import contact

    logging.getLogger().addHandler(logging.NullHandler())  # the table says what drivers would log
    found = asyncio.run(contact(config))
    print()
    print("\n".join(table(("CONTACTED", "NAME", "IS", "WHAT"), map(_finding, found))))
    states = {each.state for each in found}
    if "wrong" in states:
        return exits.CONFIG
    return exits.SOFTWARE if "away" in states else exits.OK


def _finding(one: Finding) -> Sequence[str]:
    return one.part, one.name or "-", one.state, one.what


def _report(config: Config) -> Iterable[str]:
    yield f"listen  {'  '.join(map(str, config.listen)) or 'nowhere: hints come through the queue'}"
    yield f"queue   {config.queue}"
    yield f"cache   {config.cache}"
    yield f"admin   {config.admin.host_port if config.admin else 'off'}"
    yield f"state   {config.state or 'forgotten at the end'}"
    yield f"fleet   {config.fleet or 'none'}\n"
    sources = ("SOURCE", "BUDGET", "BURST", "TARGET", "LEAST GAIN", "POOL", "TIMEOUT", "TLS", "URL")
    yield from table(sources, map(_source, config.sources.values()))
    yield ""
    header = ("NAMESPACE", "KEY", "SOURCE", "VALUE", "TTL", "REFRESH", "QUOTA")
    yield from table(header, (_namespace(each, config) for each in config.namespaces.values()))
    if config.declared:
        yield ""
        yield from table(("DECLARED", "LOADER", "TAKES", "AT"), starmap(_declared, config.declared.items()))


def _source(one: SourceSection) -> Sequence[str]:
    return (
        one.name,
        _budget(one),
        f"{one.burst:g}s",
        "-" if one.freshness_target is None else f"{one.freshness_target * 100:g}%",
        f"{one.least_gain:g}",
        str(one.pool_size),
        f"{one.statement_timeout:g}s",
        one.encryption.mode,
        str(one.url or "-"),
    )


def _budget(one: SourceSection) -> str:
    return f"{one.db_time * 1000:g}ms/s" if one.db_time is not None else f"{one.budget:g}/s"


def _declared(name: str, one: Definition) -> Sequence[str]:
    return (
        name,
        f"{one.loader.__module__}:{one.name}",
        "many keys" if one.batch else "one key",
        str(one.place),
    )


def _namespace(one: NamespaceSection, config: Config) -> Sequence[str]:
    declared = config.declared.get(one.name)
    quota = f"{one.quota.rate:g}/s" if one.quota else "-"
    return (
        one.name,
        one.pattern.text,
        one.load.source,
        "its codec" if declared and declared.spelling.encoding is None else one.encoding,
        f"{one.ttl.base:g}s" + (f" + {one.fail_safe.extend_to:g}s" if one.fail_safe else ""),
        _refresh(one),
        quota,
    )


def _refresh(one: NamespaceSection) -> str:
    refresh = one.refresh
    if refresh.policy == "fixed":
        return f"every {refresh.every:g}s"
    worth = "" if refresh.worth == 1 else f", worth {refresh.worth:g}"
    return f"price{worth}{'' if refresh.max_age is None else f', max_age {refresh.max_age:g}s'}"
