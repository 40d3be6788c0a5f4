"""Changes of rows that a column tells which grows with each change: see `feed`."""

from cacheupdater.adapters.feed_poll.checks import PollChecks
from cacheupdater.adapters.feed_poll.feed import PollFeed
from cacheupdater.adapters.feed_poll.settings import PollSettings, PollTable

__all__ = ["PollChecks", "PollFeed", "PollSettings", "PollTable"]
