"""`cacheupdater demo`: one shop, four applications, the same readers, the same rows, and how many reads each gets wrong.

Run by `cli.demo` for half a minute on a Redis, a database and an updater of its own. It measures and decides nothing
for the service; only that command imports it. It is the one part of this package that uses the client, as an application would.
"""
