"""`cacheupdater check`: says whether a configuration can work, without contacting anything.

Prints the settings that would be used, defaults merged, or every problem with its line (exit 78).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cacheupdater.cli import exits
from cacheupdater.cli.tables import table

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Mapping, Sequence

    from cacheupdater.config import Config, NamespaceConfig, SourceConfig


def add_to(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], file: argparse.ArgumentParser
) -> None:
    text = "Check a configuration and print what it amounts to. Contacts nothing and imports no loader."
    parser = commands.add_parser(
        "check", parents=[file], help="check the configuration, contact nothing", description=text
    )
    parser.set_defaults(command=check)


def check(args: argparse.Namespace, environ: Mapping[str, str]) -> int:
    from cacheupdater.config import load_config

    config = load_config(args.config, environ)
    print(f"{args.config}: OK\n")
    print("\n".join(_report(config)))
    print("\nNothing was contacted: Redis, sources and Python loaders are first used by `cacheupdater run`.")
    return exits.OK


def _report(config: Config) -> Iterable[str]:
    yield f"listen  {'  '.join(map(str, config.listen))}"
    yield f"queue   {config.queue.url}  partitions {config.queue.partitions}"
    yield f"cache   {config.cache}"
    yield f"admin   {config.admin.host_port if config.admin else 'off'}"
    yield f"state   {config.state or 'forgotten at the end'}"
    yield f"fleet   {config.fleet or 'none'}\n"
    sources = ("SOURCE", "BUDGET", "BURST", "TARGET", "POOL", "TIMEOUT", "URL")
    yield from table(sources, map(_source, config.sources.values()))
    yield ""
    header = ("NAMESPACE", "KEY", "SOURCE", "VALUE", "TTL", "REFRESH", "QUOTA")
    yield from table(header, map(_namespace, config.namespaces.values()))


def _source(one: SourceConfig) -> Sequence[str]:
    return (
        one.name,
        _budget(one),
        f"{one.burst:g}s",
        "-" if one.freshness_target is None else f"{one.freshness_target * 100:g}%",
        str(one.pool_size),
        f"{one.statement_timeout:g}s",
        str(one.url or "-"),
    )


def _budget(one: SourceConfig) -> str:
    return f"{one.db_time * 1000:g}ms/s" if one.db_time is not None else f"{one.budget:g}/s"


def _namespace(one: NamespaceConfig) -> Sequence[str]:
    quota = f"{one.quota.rate:g}/s" if one.quota else "-"
    return (
        one.name,
        one.pattern.text,
        one.load.source,
        one.encoding,
        f"{one.ttl:g}s",
        _refresh(one),
        quota,
    )


def _refresh(one: NamespaceConfig) -> str:
    if one.policy == "fixed":
        return f"every {one.every:g}s"
    worth = "" if one.worth == 1 else f", worth {one.worth:g}"
    return f"price{worth}{'' if one.max_age is None else f', max_age {one.max_age:g}s'}"
