"""Real servers on this machine: Redis, PostgreSQL and Kafka, found or fetched, started, stopped, frozen and removed.

The demonstrations and the tests start them, without root and on 127.0.0.1 alone. The service never does. They ship with
the package, because the demonstrations need them.
"""
