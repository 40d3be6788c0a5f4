"""The composition root: see `service`."""

from cacheupdater.service.service import DRAIN, Service

__all__ = ["DRAIN", "Service"]
