"""Fixtures for every test: real servers that the run starts; figures and failures on the screen; both forms of the suite; the machine's share."""

pytest_plugins = [
    "suite.proving",
    "suite.machine",
    "suite.examples",
    "servers.forgetting",
    "suite.figures",
    "suite.failures",
    "servers.redis_fixture",
    "servers.redis_cluster",
    "servers.postgres",
    "brokers.fixture",
    "group.options",
    "live.warm",
]
