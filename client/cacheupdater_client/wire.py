"""The name of `protocol.wire` before 0.2. The release after 0.2 removes it."""

from cacheupdater_client.protocol.mailbox import *  # noqa: F403  some of its names stand here now
from cacheupdater_client.protocol.wire import *  # noqa: F403  every other name that it had
