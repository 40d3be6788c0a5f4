"""The name of `protocol.wire` before 0.2; it goes with the release after."""

from cacheupdater_client.protocol.wire import *  # noqa: F403  every name that it had
