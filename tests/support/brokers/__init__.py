"""Kafka for tests: the brokers of a run, hand-made batches, and a model of a topic."""
