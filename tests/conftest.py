"""Fixtures for every test: real servers that the run starts; figures on the screen; both forms of the suite; the machine's share."""

pytest_plugins = [
    "proving",
    "machine",
    "forgetting",
    "figures",
    "redis_fixture",
    "redis_cluster_fixture",
    "postgres_fixture",
    "kafka_fixture",
    "group_options",
]
