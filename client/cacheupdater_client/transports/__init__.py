"""How frames leave the process: see `links`."""

from cacheupdater_client.transports.links import Link, link_to

__all__ = ["Link", "link_to"]
