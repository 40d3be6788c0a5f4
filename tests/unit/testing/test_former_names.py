"""What moved to `cacheupdater.local` keeps its old name for one release."""

from __future__ import annotations

from importlib import import_module

import pytest


@pytest.mark.parametrize(
    ("module", "name"),
    [("kafka_server", "KafkaServer"), ("postgres_server", "PostgresServer"), ("redis_server", "RedisServer")],
)
def test_starters_of_servers_are_found_by_their_former_name(module, name):
    former = import_module(f"cacheupdater.testing.{module}")
    assert getattr(former, name) is getattr(import_module(f"cacheupdater.local.{module}"), name)
