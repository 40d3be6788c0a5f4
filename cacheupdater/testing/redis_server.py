"""The name of `cacheupdater.local.redis_server` before 0.2; it goes with the release after."""

from cacheupdater.local.redis_server import *  # noqa: F403  every name that it had
