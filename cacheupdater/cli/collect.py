"""`cacheupdater collect`: reads its arguments and the configuration, then runs a collector until the end; with `--drain`, a drain.

What the arguments say counts more than what the file says. With `--queue` no file is needed, and none is read unless it is named.
A process that has read a file begins again with its settings as arguments (`_again`), and the URLs of queues in the environment,
for a URL may hold a password.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from cacheupdater import masking
from cacheupdater.cli import configured, spill
from cacheupdater.cli.run import LEVELS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cacheupdater.cli.serve import Runnable
    from cacheupdater.collector import Settings
    from cacheupdater.collector.drain import DrainSettings
    from cacheupdater.config import Config

# in the environment
_FILE, _QUEUE, _DRAIN = "CACHEUPDATER_CONFIG", "CACHEUPDATER_QUEUE", "CACHEUPDATER_DRAIN"
_TEXT = (
    "Take the hints of all applications on this machine, merge them, and forward them. Prints one line beginning with `ready` "
    "when it accepts hints; SIGTERM forwards what is left and ends it. Without --queue, the file says all. "
    "With --drain, carry what lies on an old queue to the new one instead, until nothing is left there."
)


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser], environ: Mapping[str, str]) -> None:
    text = "merge the hints of this machine and forward them"
    parser = commands.add_parser("collect", help=text, description=_TEXT)
    configured.add_file_to(parser, environ)
    parser.add_argument(
        "--listen",
        nargs="+",
        type=_listen,
        metavar="ADDRESS",
        help="where applications send hints: unix:///path, tcp://host:port, or http://127.0.0.1:port for POST /v1/hints (default: the file's listen, else unix:///run/cacheupdater/hints.sock)",
    )
    parser.add_argument(
        "--queue",
        type=_queue,
        metavar="URL",
        default=environ.get(_QUEUE) or None,
        help="where hints go: kafka://host:9092/topic, redis://host:6379/0?stream=name, sqlite:////path, postgresql://…, or an updater at unix:///path or tcp://host:port (default: $CACHEUPDATER_QUEUE, else the file's queue)",
    )
    parser.add_argument(
        "--drain",
        type=_old,
        metavar="URL",
        default=environ.get(_DRAIN) or None,
        help="carry the hints of this old queue to the new one instead of taking hints, and end when nothing has come from there for 60 s; written as in the updaters' file (default: $CACHEUPDATER_DRAIN)",
    )
    parser.add_argument(
        "--only",
        nargs="+",
        type=_prefix,
        metavar="PREFIX",
        help="forward only keys that begin so (default: those of the file's namespaces, else what the updater declares)",
    )
    parser.add_argument(
        "--admin",
        type=_host_port,
        metavar="HOST:PORT",
        help="serve /metrics, /livez and /readyz there (default: the file's admin)",
    )
    spill.add_to(parser)
    parser.add_argument(
        "--log-level", choices=LEVELS, default="info", help="what to log on stderr (default: info)"
    )
    parser.set_defaults(command=run)


def run(args: argparse.Namespace, environ: Mapping[str, str]) -> int:
    from cacheupdater.cli import early, exits

    with early.signals(stopped=exits.UNFINISHED if args.drain else exits.OK):
        return _run(args, environ)


def _run(args: argparse.Namespace, environ: Mapping[str, str]) -> int:
    from cacheupdater.cli import logs
    from cacheupdater.cli.serve import serve

    reads_file = _reads_file(args, environ)
    config = _config(args, environ) if reads_file else None
    settings = _drain_settings(args, config) if args.drain else _settings(args, config)
    if reads_file:
        again = {name: said for name, said in environ.items() if name != _FILE} | {_QUEUE: settings.queue}
        again |= {_DRAIN: args.drain} if args.drain else {}
        os.execve(sys.executable, _again(settings, args.log_level), again)  # noqa: S606  our own interpreter
    masking.keep(settings.queue)
    logs.configure(args.log_level, sys.stderr)
    return serve(_made(settings))


def _made(settings: Settings | DrainSettings) -> Runnable:
    from cacheupdater.collector import Collector, Settings

    if isinstance(settings, Settings):
        return Collector(settings)
    from cacheupdater.collector.drain import Drain

    masking.keep(settings.drain)
    return Drain(settings)


def _reads_file(args: argparse.Namespace, environ: Mapping[str, str]) -> bool:
    """With a queue, only if the file is named. The image names one in its environment, and it may be missing there."""
    if args.queue is None:
        return True
    if args.config == environ.get(_FILE):
        return Path(args.config).exists()
    return not isinstance(args.config, configured.Unsaid)


def _config(args: argparse.Namespace, environ: Mapping[str, str]) -> Config:
    from cacheupdater.config import load_config

    return load_config(args.config, environ, collects=True)


def _settings(args: argparse.Namespace, config: Config | None) -> Settings:
    from cacheupdater.collector import Settings
    from cacheupdater.config.addresses import CONVENTIONAL
    from cacheupdater.errors import Misconfigured

    listen = args.listen or [str(each) for each in (config.listen if config else (CONVENTIONAL,))]
    queue = args.queue or (_queue_of(config, args.config) if config else "")
    if queue in listen:
        raise Misconfigured(f"{queue} is where this collector listens; it would forward hints to itself")
    return Settings(
        listen=listen,
        queue=queue,
        only=args.only or (_prefixes(config) if config else ()),
        admin=args.admin or (config.admin.host_port if config and config.admin else None),
        spill=args.spill,
        limits=spill.limits(args),
    )


def _drain_settings(args: argparse.Namespace, config: Config | None) -> DrainSettings:
    """Of a file a drain takes the new queue alone: an updater with the same file may run beside it, at the file's addresses."""
    from cacheupdater.collector.drain import DrainSettings
    from cacheupdater.errors import Misconfigured

    if args.listen or args.only or args.spill:
        raise Misconfigured(
            "--drain takes no hints from applications and carries all keys; start a collector with --listen, --only or --spill beside it"
        )
    spill.limits(args)
    queue = args.queue or (_queue_of(config, args.config) if config else "")
    return DrainSettings(drain=args.drain, queue=queue, admin=args.admin)


def _again(settings: Settings | DrainSettings, log_level: str) -> list[str]:
    """The same command without the file, for the same process: what reading the file has loaded would stay for good, 15 MiB
    beside each application."""
    from cacheupdater.collector import Settings

    # -P: Python must not search the working directory first
    command = [sys.executable, "-P", "-m", "cacheupdater", "collect", "--log-level", log_level]
    if settings.admin:
        command += ["--admin", settings.admin]
    if not isinstance(settings, Settings):
        return command
    command += ["--listen", *settings.listen]
    command += spill.again(settings.spill, settings.limits)
    return [*command, "--only", *map(os.fsdecode, settings.only)] if settings.only else command


def _queue_of(config: Config, file: str) -> str:
    from cacheupdater.config.queues import producer_url
    from cacheupdater.errors import Misconfigured

    try:
        return producer_url(config.queue)
    except ValueError as e:
        raise Misconfigured(
            f"{file}: queue {e}: use kafka://, redis://, sqlite:// or postgresql://, or --queue with the address where the updater listens"
        ) from e


def _prefixes(config: Config) -> list[bytes]:
    from cacheupdater.core.keyspace import Keyspace

    return Keyspace([(each.pattern, None) for each in config.namespaces.values()]).prefixes


def _listen(text: str) -> str:
    from cacheupdater.config.addresses import MemoryAddress, listen_address

    try:
        address = listen_address(text)
    except ValueError as e:
        raise argparse.ArgumentTypeError(str(e)) from e
    if isinstance(address, MemoryAddress):
        raise argparse.ArgumentTypeError(
            "a mailbox is within one process; write unix:///path or tcp://host:port"
        )
    return str(address)


def _queue(text: str) -> str:
    try:
        is_shared = _is_shared(text)
    except ValueError as e:
        raise argparse.ArgumentTypeError(str(e)) from e
    if is_shared:
        return text
    from cacheupdater.config.addresses import TcpAddress, UnixAddress, listen_address

    try:
        address = listen_address(text)
    except ValueError:
        address = None
    if not isinstance(address, UnixAddress | TcpAddress):
        said = "is no queue; use kafka://host:9092/topic, redis://host:6379/0?stream=name, sqlite:////path, postgresql://…, unix:///path or tcp://host:port"
        raise argparse.ArgumentTypeError(said)
    return str(address)


def _old(text: str) -> str:
    from cacheupdater.collector.old_queue import old_queue

    try:
        old_queue(text)
    except ValueError as e:
        raise argparse.ArgumentTypeError(str(e)) from e
    return text


def _is_shared(url: str) -> bool:
    """Whether this is the URL of a queue that updaters share. ValueError says what is wrong with the URL."""
    scheme = url.partition(":")[0].lower()
    if scheme == "kafka":
        from cacheupdater_client.transports.kafka import kafka_to

        kafka_to(url)
    elif scheme.startswith("redis"):
        from cacheupdater_client.transports.redis_streams import streams_to

        streams_to(url)
    elif scheme.startswith(("sqlite", "postgres")):
        from cacheupdater.core import depot_url

        depot_url.parse(url)
    else:
        return False
    return True


def _prefix(text: str) -> bytes:
    if not text:
        raise argparse.ArgumentTypeError("an empty prefix means every key; leave --only out")
    return os.fsencode(text)


def _host_port(text: str) -> str:
    from cacheupdater.config.addresses import host_port

    try:
        return host_port(text).host_port
    except ValueError as e:
        raise argparse.ArgumentTypeError(str(e)) from e
