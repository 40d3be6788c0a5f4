"""The name of `protocol.wire` before 0.2. The release after 0.2 removes it."""

from cacheupdater_client.protocol.wire import *  # noqa: F403  every name that it had
