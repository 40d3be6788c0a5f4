"""How fresh are the values that readers see, and how many rows does that cost? On real servers.

A Redis, a PostgreSQL whose rows carry a version, reader processes with our client, a writer that logs its commits, and an
updater (`cacheupdater run`). `run` measures lane after lane: the policies `price` and `fixed`, which differ by configuration
only, and a plain TTL, where the application loads what it misses. Afterwards `judge` finds the stale reads, and `statements`
counts the rows that the database served.
"""
