"""The link to the queue behind a collector or a drain: which one a URL names, and what people hear of its troubles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cacheupdater.collector.depot_link import DepotLink
from cacheupdater.core import depot_url
from cacheupdater_client.transports import Link, link_to

if TYPE_CHECKING:
    from cacheupdater.pipeline.notices import Notices

_SUBJECT = (
    "collector"  # an updater in the same process, or an old queue, may be missing for a reason of its own
)


def made_link(url: str) -> Link:
    """The link to this queue. ValueError says what is wrong with the URL."""
    if url.partition("://")[0] in depot_url.SCHEMES:
        return DepotLink(depot_url.parse(url))
    return link_to(url)()


def tell(link: Link, name: str, notices: Notices) -> None:
    """Reports whether the queue takes hints. `name` is its URL, for people."""
    if link.trouble:
        notices.trouble("queue_missing", _SUBJECT, f"{name} does not take hints: {link.trouble}")
    elif link.connected:
        notices.over("queue_missing", _SUBJECT)
