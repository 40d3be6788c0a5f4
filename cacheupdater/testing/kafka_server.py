"""The name of `cacheupdater.local.kafka_server` before 0.2; it goes with the release after."""

from cacheupdater.local.kafka_server import *  # noqa: F403  every name that it had
