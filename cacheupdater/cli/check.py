"""`cacheupdater check`: says whether a configuration can work, without contacting anything.

Prints the settings that would be used, defaults merged, or every problem with its line (exit 78).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cacheupdater.cli import exits

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
    yield f"admin   {config.admin.host_port if config.admin else 'off'}\n"
    yield from _table(("SOURCE", "BUDGET", "POOL", "TIMEOUT", "URL"), map(_source, config.sources.values()))
    yield ""
    header = ("NAMESPACE", "KEY", "SOURCE", "VALUE", "TTL", "EVERY", "QUOTA")
    yield from _table(header, map(_namespace, config.namespaces.values()))


def _source(one: SourceConfig) -> Sequence[str]:
    return (
        one.name,
        f"{one.budget:g}/s",
        str(one.pool_size),
        f"{one.statement_timeout:g}s",
        str(one.url or "-"),
    )


def _namespace(one: NamespaceConfig) -> Sequence[str]:
    quota = f"{one.quota.rate:g}/s" if one.quota else "-"
    return (
        one.name,
        one.pattern.text,
        one.load.source,
        one.encoding,
        f"{one.ttl:g}s",
        f"{one.every:g}s",
        quota,
    )


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterable[str]:
    lines = [header, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        yield "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
