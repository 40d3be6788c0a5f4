"""The name of `cacheupdater.local.postgres_server` before 0.2; it goes with the release after."""

from cacheupdater.local.postgres_server import *  # noqa: F403  every name that it had
