"""Fixtures for every test: real servers, started by the run itself."""

pytest_plugins = ["redis_fixture", "postgres_fixture"]
