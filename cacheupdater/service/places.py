"""Checks what an updater needs on its machine: a folder for its socket, its ports, its state file.

`refusals` calls `unusable` for `cacheupdater check`. Each check does what `run` will do, and undoes it: new folders are
removed, ports are closed. If an updater with this configuration runs already, its ports are not reported: operators run
`check` beside a running updater.
"""

from __future__ import annotations

import http.client
import json
import socket
from contextlib import closing
from pathlib import Path
from tempfile import NamedTemporaryFile
from time import monotonic
from typing import TYPE_CHECKING

from cacheupdater.adapters.state_file import refuse_unusable
from cacheupdater.config.addresses import HttpAddress, TcpAddress, UnixAddress
from cacheupdater.errors import Misconfigured
from cacheupdater_client.protocol import wire

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cacheupdater.config.addresses import Address
    from cacheupdater.config.problems import Path as Way
    from cacheupdater.config.settings import Config

_CONNECT_S = 0.2  # to connect to a port of this machine
_ANSWER_S = 2.0  # for an updater whose loop is busy
_ANSWER_BYTES_MAX = 1 << 20  # another program on the port may send without end


def unusable(config: Config) -> Iterator[tuple[Way, str]]:
    """The path of each setting that cannot work on this machine, and why."""
    runs = _runs(config)
    for at, address in enumerate(config.listen):
        if why := _no_listener(address, runs=runs):
            yield ("listen", at), f"cannot listen on {address}: {why}"
    if isinstance(config.admin, TcpAddress) and not runs and (why := _no_port(config.admin)):
        yield ("admin", "listen"), f"cannot listen on {config.admin.host_port}: {why}"
    if config.state is not None:
        try:
            refuse_unusable(Path(config.state))
        except Misconfigured as e:
            yield ("state",), str(e).removeprefix("state: ")


def _no_listener(address: Address, *, runs: bool) -> str:
    """Why nothing can listen on the address; empty if something can. Ports of an updater that `runs` are its own."""
    if isinstance(address, UnixAddress):
        return _no_socket(Path(address.path))
    return _no_port(address) if isinstance(address, TcpAddress | HttpAddress) and not runs else ""


def _no_socket(path: Path) -> str:
    """Why no socket can be made there; empty if one can."""
    if path.exists() and not path.is_socket():
        return f"{path} is there and is no socket; remove it or choose another path"
    made: list[Path] = []
    try:
        for folder in reversed([path.parent, *path.parent.parents]):
            if not folder.exists():
                folder.mkdir(mode=0o750)
                made.append(folder)
        with NamedTemporaryFile(dir=path.parent, prefix=f"{path.name}.probe-"):
            return ""
    except OSError as e:
        return f"{path.parent}: {e.strerror or e}; make this folder for the updater's user, or choose another"
    finally:
        for folder in reversed(made):
            folder.rmdir()


def _runs(config: Config) -> bool:
    """Whether an updater runs at the addresses of this configuration: after a restart the new one takes its place."""
    doors = (each for each in config.listen if isinstance(each, UnixAddress | TcpAddress))
    return any(map(_answers, doors)) or _is_updater(config.admin)


def _is_updater(admin: object) -> bool:
    """Whether an updater serves the admin address. An updater that reads Kafka has no other address."""
    if not isinstance(admin, TcpAddress):
        return False
    with closing(http.client.HTTPConnection(admin.host, admin.port, timeout=_ANSWER_S)) as connection:
        try:
            connection.request("GET", "/readyz")
            said = json.loads(connection.getresponse().read(_ANSWER_BYTES_MAX))
        except (OSError, http.client.HTTPException, ValueError):
            return False
    return isinstance(said, dict) and {"ready", "conditions"} <= said.keys()


def _answers(address: UnixAddress | TcpAddress) -> bool:
    """Whether an updater listens there. Nobody else has our socket's path; on a port any program may answer."""
    try:
        if isinstance(address, TcpAddress):
            return _says_hello(address)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
            peer.settimeout(_CONNECT_S)
            peer.connect(address.path)
    except OSError:
        return False
    return True


def _says_hello(address: TcpAddress) -> bool:
    """An updater says hello first of all. Another program says something else, or waits for a request."""
    reader = wire.ReplyReader()
    with socket.create_connection((address.host, address.port), _CONNECT_S) as peer:
        ends = monotonic() + _ANSWER_S
        try:
            while (left := ends - monotonic()) > 0:
                peer.settimeout(left)
                if not (said := peer.recv(_ANSWER_BYTES_MAX)):
                    break
                for first in reader.feed(said):
                    return isinstance(first, wire.Hello)
        except wire.Malformed:
            return False
    return False


def _no_port(address: TcpAddress | HttpAddress) -> str:
    """Why nothing can listen on the port; empty if it is free."""
    try:
        found = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        for family, kind, protocol, _, where in found:
            with socket.socket(family, kind, protocol) as server:
                server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the updater's
                if family == socket.AF_INET6:
                    server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                server.bind(where)
    except OSError as e:
        return f"{e.strerror or e}; choose another port, or stop the process that has it"
    return ""
