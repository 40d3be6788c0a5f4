"""Updaters of one group on a real Kafka: the application, the generator of changes, the ledger, and their stories."""
