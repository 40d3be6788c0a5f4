"""Where the updater listens: a unix socket, a TCP port, a port for requests by HTTP, or a mailbox inside this process.

The models parse addresses. The service hands their plain parts to the adapters.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeAlias

from cacheupdater.core.hosts import is_local

UNIX_PATH_MAX = 100  # bytes: the kernel's sockaddr_un holds 104 to 108, and a temporary name needs a few
_FORMS = "unix:///run/cacheupdater/hints.sock, tcp://127.0.0.1:7171, http://127.0.0.1:7172 or memory://name"
_HOST_PORT = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):(?P<port>[0-9]{1,5})")


@dataclass(frozen=True, slots=True)
class UnixAddress:
    """A socket file; its directory decides who may send hints."""

    path: str

    @property
    def host_port(self) -> str:
        """The address itself, for code that wants a TCP address' host and port."""
        return str(self)

    def __str__(self) -> str:
        return f"unix://{self.path}"


@dataclass(frozen=True, slots=True)
class TcpAddress:
    """Port 0 means any free port."""

    host: str
    port: int

    @property
    def host_port(self) -> str:
        """`127.0.0.1:9464`, `[::1]:9464`."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def __str__(self) -> str:
        return f"tcp://{self.host_port}"


@dataclass(frozen=True, slots=True)
class HttpAddress:
    """A port of this machine for `POST /v1/hints`, which a collector serves."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"http://{TcpAddress(self.host, self.port).host_port}"


@dataclass(frozen=True, slots=True)
class MemoryAddress:
    """A mailbox for clients in the same process."""

    name: str

    def __str__(self) -> str:
        return f"memory://{self.name}"


Address: TypeAlias = UnixAddress | TcpAddress | HttpAddress | MemoryAddress

CONVENTIONAL = UnixAddress("/run/cacheupdater/hints.sock")
"""Where a client with `emit="auto"` looks. The default of `listen` on every machine, so that one file means one thing."""


def listen_address(value: object) -> Address:
    """One item of `listen`."""
    text = value if isinstance(value, str) else ""
    scheme, sep, rest = text.partition("://")
    if scheme == "unix" and sep:
        return _unix(rest)
    if scheme == "tcp" and sep:
        return host_port(rest)
    if scheme == "http" and sep:
        return _http(rest)
    if scheme == "memory" and sep:
        return _memory(rest)
    # the text is not repeated: it may be a piece of another URL, cut by a comma
    raise ValueError(f"is no address to listen on; write {_FORMS}" if text else f"write {_FORMS}")


def host_port(value: object) -> TcpAddress:
    """`127.0.0.1:9464` or `[::1]:9464`. The host is required, so that an operator decides which machines may connect."""
    match = _HOST_PORT.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError("write a host and a port, such as 127.0.0.1:9464 (0.0.0.0 for every interface)")
    port = int(match["port"])
    if port > 65_535:
        raise ValueError(f"port {port} is above 65535")
    return TcpAddress(match["host"].strip("[]"), port)


def _unix(path: str) -> UnixAddress:
    if not path.startswith("/") or path.endswith("/"):
        raise ValueError(
            "a unix socket needs the absolute path of a file, such as unix:///run/cacheupdater/hints.sock"
        )
    if len(path.encode()) > UNIX_PATH_MAX:
        raise ValueError(f"the path of a unix socket may have at most {UNIX_PATH_MAX} bytes")
    return UnixAddress(path)


def _http(rest: str) -> HttpAddress:
    at = host_port(rest)
    if not is_local(at.host):
        raise ValueError(
            "hints by HTTP need a loopback address, such as http://127.0.0.1:7172: there is no login"
        )
    return HttpAddress(at.host, at.port)


def _memory(name: str) -> MemoryAddress:
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,64}", name):
        raise ValueError("a mailbox needs a name, such as memory://main")
    return MemoryAddress(name)
