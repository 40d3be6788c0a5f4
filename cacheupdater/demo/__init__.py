"""`cacheupdater demo`: one shop, three applications, the same readers, and what each of them costs and gets wrong.

Run by `cli.demo` for half a minute on a Redis, a database and an updater of its own. It measures and decides nothing
for the service; only that command imports it. It is the one part of this package that uses the client, as an application would.
"""
