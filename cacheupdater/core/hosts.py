"""Which hosts are this very machine: what is sent to them leaves on no wire. Names are not looked up."""

from __future__ import annotations

from ipaddress import ip_address


def is_local(host: str) -> bool:
    """A loopback address, `localhost`, or the path of a socket. A name may lead anywhere, and an empty one too."""
    if host.startswith("/") or host.lower() == "localhost":
        return True
    try:
        return ip_address(host.strip("[]").partition("%")[0]).is_loopback
    except ValueError:
        return False
