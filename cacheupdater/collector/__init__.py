"""The collector, which merges the hints of the applications of a machine and forwards them: alone (`collect`) or in an updater.

`gathered` takes hints from all listeners, `forwarder` sends them on, and `collector` runs both from the start to the drained
end. `drain` is a process of its own kind: it takes hints from an old queue, not from applications. Packs leave by the client's own outbox and links, so a queue cannot tell a collector from a client. Nothing here refreshes
anything, and nothing here loads numpy, pydantic or SQLAlchemy. A driver or redis-py is loaded only for a queue that needs it.
"""

from cacheupdater.collector.collector import Collector, Settings

__all__ = ["Collector", "Settings"]
