"""Real Redis and PostgreSQL for tests, servers that a test pretends to be, and certificates."""
