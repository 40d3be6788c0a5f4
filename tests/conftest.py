"""Fixtures for every test: real servers, started by the run itself; figures on the screen; how the run shares the machine."""

pytest_plugins = [
    "machine",
    "figures",
    "redis_fixture",
    "redis_cluster_fixture",
    "postgres_fixture",
    "kafka_fixture",
    "group_options",
]
