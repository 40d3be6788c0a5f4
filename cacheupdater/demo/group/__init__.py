"""`cacheupdater demo --kafka`: a shop's hints go through Kafka to two updaters. One updater is killed while you watch.

`cli.demo` runs it for half a minute on a Kafka broker, a Redis and a database of its own; only that command imports it. The
shop, its shoppers and the ledger are those of the other demonstration. It measures and decides nothing for the service.
"""
