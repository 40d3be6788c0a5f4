"""The queue of a single machine, in this process: see `queue`."""

from cacheupdater.adapters.queue_memory.queue import MemoryQueue

__all__ = ["MemoryQueue"]
