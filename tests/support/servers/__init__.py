"""Real Redis and PostgreSQL for tests, servers that only pretend, and certificates."""
