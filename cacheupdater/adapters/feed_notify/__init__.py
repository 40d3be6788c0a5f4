"""Changes of rows that triggers write into an outbox of PostgreSQL: see `feed` and `outbox`."""

from cacheupdater.adapters.feed_notify.feed import NotifyFeed
from cacheupdater.adapters.feed_notify.installation import NotifyInstallation
from cacheupdater.adapters.feed_notify.settings import NotifySettings

__all__ = ["NotifyFeed", "NotifyInstallation", "NotifySettings"]
