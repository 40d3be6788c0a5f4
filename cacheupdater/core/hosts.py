"""Which hosts are this machine itself: nothing that is sent to them crosses a wire. Names are not looked up."""

from __future__ import annotations

from ipaddress import ip_address


def is_local(host: str) -> bool:
    """A loopback address, `localhost`, or the path of a socket. Any other name may lead anywhere, and so may an empty one."""
    if host.startswith("/") or host.lower() == "localhost":
        return True
    try:
        return ip_address(host.strip("[]").partition("%")[0]).is_loopback
    except ValueError:
        return False
