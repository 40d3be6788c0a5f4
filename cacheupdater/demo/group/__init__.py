"""`cacheupdater demo --kafka`: a shop whose hints go through Kafka to two updaters, one of which is killed while you watch.

Run by `cli.demo` for half a minute on a Kafka broker, a Redis and a database of its own; only that command imports it. The
shop, its shoppers and the ledger are the other demonstration's. It measures and decides nothing for the service.
"""
