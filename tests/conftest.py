"""Fixtures for every test: real servers, started by the run itself; and figures that tests want on the screen."""

pytest_plugins = [
    "figures",
    "redis_fixture",
    "redis_cluster_fixture",
    "postgres_fixture",
    "kafka_fixture",
    "group_options",
]
