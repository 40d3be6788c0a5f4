"""The head of an HTTP request: how it is read, and whether it may come from this machine's browser.

The admin server and the collector's HTTP listener take a request apart here. Plain functions, no socket.
"""

from __future__ import annotations

import ipaddress
from typing import NamedTuple
from urllib.parse import urlsplit

HEAD_BYTES_MAX = 8 * 1024  # request line and headers; scrapers, probes and clients send under 1 KiB
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


class Request(NamedTuple):
    """The head of a request."""

    method: str
    path: str
    headers: dict[str, str]  # names in lower case
    query: str = ""  # behind the question mark, as sent


def parsed(head: bytes) -> Request:
    """The request whose head this is. Raises ValueError."""
    request_line, *lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    method, target, version = request_line.split(" ")
    if not version.startswith("HTTP/1."):
        raise ValueError(version)
    headers = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip() or (name.lower() == "host" and "host" in headers):
            raise ValueError(line)
        headers[name.lower()] = value.strip()
    path, _, query = target.partition("?")
    return Request(method, path, headers, query)


def host_name(host: str) -> str | None:
    """The name in a Host header, without the port and brackets."""
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None


def is_loopback(host: str) -> bool:
    """Whether this is an address that only this machine can reach."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
