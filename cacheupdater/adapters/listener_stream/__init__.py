"""Where applications on this machine hand in their hints: see `listener`."""

from cacheupdater.adapters.listener_stream.listener import Inlet, PeerLimits, StreamListener

__all__ = ["Inlet", "PeerLimits", "StreamListener"]
