"""`cacheupdater collect`: one process beside the applications of a machine, which merges their hints and forwards them.

`gathered` takes hints from all listeners, `forwarder` sends them on, and `collector` runs both from the start to the drained
end. Packs leave by the client's own outbox and links, so a queue cannot tell a collector from a client. Nothing here refreshes
anything, and nothing here loads a database driver, numpy, pydantic or redis-py.
"""

from cacheupdater.collector.collector import Collector, Settings

__all__ = ["Collector", "Settings"]
