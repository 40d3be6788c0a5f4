"""Fixtures for every test: real servers, started by the run itself; and figures that tests want on the screen."""

pytest_plugins = ["figures", "redis_fixture", "postgres_fixture"]
