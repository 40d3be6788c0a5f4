"""The queue on a depot, for the services that share it."""

from cacheupdater.adapters.queue_depot.queue import DepotQueue

__all__ = ["DepotQueue"]
