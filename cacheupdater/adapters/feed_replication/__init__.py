"""Changes that PostgreSQL tells by logical replication: see `feed` and `installation`."""

from cacheupdater.adapters.feed_replication.feed import ReplicationFeed
from cacheupdater.adapters.feed_replication.installation import ReplicationInstallation
from cacheupdater.adapters.feed_replication.settings import Settings

__all__ = ["ReplicationFeed", "ReplicationInstallation", "Settings"]
