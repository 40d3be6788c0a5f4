"""How fresh are the values that readers see, for the rows that it cost? On real servers.

A Redis, a PostgreSQL whose rows carry a version, reader processes with our client, a writer that logs what it
commits, and an updater (`cacheupdater run`). `run` measures lane after lane: the policies `price` and `fixed`, by
configuration only, and a plain TTL, where the application loads what it misses. `judge` says afterwards which reads
were stale, and `statements` what the database was asked for.
"""
