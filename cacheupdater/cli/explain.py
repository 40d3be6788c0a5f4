"""`cacheupdater explain KEY`: why is this value old? Asks the running updater, Redis and, with --connect, the source.

Without a running updater, it prints what the configuration and Redis say. While the file is refused, the updater says what its
own configuration has, which is the one that holds. It writes nothing.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote_from_bytes

from cacheupdater.cli import exits
from cacheupdater.cli.tables import number

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Mapping
    from typing import TypeAlias

    from cacheupdater.config import Config
    from cacheupdater.config.partly import Partly
    from cacheupdater.config.secrets import Url

    Facts: TypeAlias = Mapping[str, object]


ROW = "`explain --connect` needs the whole file, to load the row"
SILENT = "without an updater's answer, `explain` needs the whole file"


def add_to(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], file: argparse.ArgumentParser
) -> None:
    text = (
        "Say why the value of a key is old: whose key it is, what it waits for, its last refresh, what Redis has."
        " Writes nothing."
    )
    parser = commands.add_parser("explain", parents=[file], help="say why a value is old", description=text)
    parser.add_argument("key", metavar="KEY", help="as it is in Redis, such as product:7")
    parser.add_argument("--connect", action="store_true", help="load its row too, and compare; one statement")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text", help="default: text")
    parser.set_defaults(command=explain)


def explain(args: argparse.Namespace, environ: Mapping[str, str]) -> int:
    import asyncio

    from cacheupdater.cli.configured import needed, whole
    from cacheupdater.service.reasons import because

    loading = whole(args, environ, ROW) if args.connect else None
    config = loading or needed(args, environ, "admin", "cache")
    key = args.key.encode("utf-8", "surrogateescape")
    updater, silence, asked = _updater(args.config, config, key)
    declared = _declared(config, key, updater, silence)
    redis, row = asyncio.run(_looked(config.cache, key, loading))
    said = {
        "key": args.key,
        "declared": declared,
        "redis": redis,
        "row": row,
        "updater": updater,
        "silence": silence,
        "because": because(declared, redis, updater, row, asked=asked),
    }
    if args.output == "json":
        print(json.dumps(said, indent=2, ensure_ascii=False))
    else:
        from cacheupdater.config.units import printable

        print("\n".join(map(printable, _page(said))))
    return exits.OK


def _declared(config: Config | Partly, key: bytes, updater: Facts | None, silence: str | None) -> Facts:
    """What the configuration says of the key. That of the updater holds while the file is refused."""
    from cacheupdater.cli.configured import refused
    from cacheupdater.config.partly import Partly
    from cacheupdater.service import whose

    if not isinstance(config, Partly):
        return whose.declared(config.namespaces, key).plain()
    if found := _facts(_facts(updater).get("declared")):
        return found
    raise refused(config, f"{silence or 'the updater is of an older version'}; {SILENT}")


async def _looked(cache: Url, key: bytes, loading: Config | None) -> tuple[Facts, Facts | None]:
    """What Redis has, and the key's row if it shall be loaded."""
    from cacheupdater.cli.workplace import look_last
    from cacheupdater.service import look, whose

    if loading is None:
        return await look.seen(cache, key), None
    look_last()  # for Python loaders, as in `run`
    one = whose.declared(loading.namespaces, key)
    return await look.seen(cache, key), await look.row(loading, one, key)


class _Answer(NamedTuple):
    updater: Facts | None
    silence: str | None  # why there is no answer
    asked: bool  # False: the configuration does not say where


def _updater(file: str, config: Config | Partly, key: bytes) -> _Answer:
    from cacheupdater.cli.asking import address_of, asked
    from cacheupdater.errors import CacheUpdaterError, Misconfigured

    try:
        address = address_of(file, config.admin)
    except Misconfigured as e:
        return _Answer(None, str(e), asked=False)
    try:
        page = f"/explain?key={quote_from_bytes(key, safe='')}"
        return _Answer(asked(address, page, token=config.admin_token), None, asked=True)
    except CacheUpdaterError as e:
        return _Answer(None, str(e), asked=True)


def _page(said: Facts) -> Iterable[str]:
    """The report: a line per part, then the reasons."""
    yield str(said["key"])
    declared, redis, updater, row = (_facts(said[name]) for name in ("declared", "redis", "updater", "row"))
    if declared["namespace"] is not None:
        yield f"  namespace  {declared['namespace']}  {declared['pattern']}  {_listed(_facts(declared['captures']))}"
    if declared.get("fits"):
        yield f"  loaded by  {declared['statement']}  (source {declared['source']})"
    yield f"  in Redis   {_redis(redis)}"
    if row:
        yield f"  row now    {_row(row)}"
    yield f"  updater    {_owner(updater) if updater else said['silence']}"
    if updater:
        yield from _known(updater)
    if feed := _facts(_facts(updater).get("feed")):
        yield f"  feed       {_feed(feed)}"
    yield ""
    yield "because"
    because = said["because"]
    assert isinstance(because, list)
    yield from (f"  {each}" for each in because)


def _redis(redis: Facts) -> str:
    if "error" in redis:
        return str(redis["error"])
    if redis["type"] == "none":
        return "nothing"
    ttl = "never expires" if redis["ttl"] is None else f"expires in {_s(redis['ttl'])}"
    age = "of unknown age" if redis["age"] is None else f"{_s(redis['age'])} old by its floor"
    return f"{redis['type']} of {redis['size']} bytes, reads as {redis['reads_as']}, {age}, {ttl}: {redis['value']}"


def _row(row: Facts) -> str:
    if "exists" not in row:
        return str(row["error"])
    return str(row["value"]) if row["exists"] else "there is none"


def _owner(updater: Facts) -> str:
    if updater["partition"] is None:
        return "the key's partition is not known before the queue is found"
    return f"partition {updater['partition']} of {updater['partitions']}: {updater['owner'] or 'nobody'}"


def _known(updater: Facts) -> Iterable[str]:
    last, policy = _facts(updater["last"]), _facts(updater["policy"])
    if last:
        why = f" ({last['why']})" if last["why"] else ""
        yield f"  last       {last['result']}{why} {_s(last['at'])} ago, took {number(_float(last['seconds']) * 1000)} ms"
    known = _facts(policy.get("known"))
    if known:
        rates = f"{_float(known['reads']):.2g} reads/s, {_float(known['changes']):.2g} changes/s"
        yield (
            f"  policy     {rates}, stale with {_float(known['stale']):.0%}, last read {_s(known['unread'])} ago;"
            f" a load is worth {_float(known['worth']):.2g} stale reads, the price is {_float(known['price']):.2g}"
        )


def _feed(feed: Facts) -> str:
    """The feed that tells changes of the key's namespace."""
    if not feed["reads"]:
        return f"{feed['kind']} of source {feed['source']}, which another updater reads"
    lag = (
        ""
        if feed["lag_s"] is None
        else f", the last change {number(_float(feed['lag_s']) * 1000)} ms after its commit"
    )
    return f"{feed['kind']} of source {feed['source']}, which spoke {_s(feed['spoke_s'])} ago{lag}"


def _listed(facts: Facts) -> str:
    return ", ".join(f"{name} = {value}" for name, value in facts.items())


def _facts(value: object) -> Facts:
    return value if isinstance(value, dict) else {}


def _float(value: object) -> float:
    return float(str(value))


def _s(value: object) -> str:
    return f"{number(_float(value))} s"
