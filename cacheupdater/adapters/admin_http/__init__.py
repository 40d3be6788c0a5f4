"""The HTTP pages for operators and Kubernetes: see `server`."""

from cacheupdater.adapters.admin_http.server import AdminServer, Keyed

__all__ = ["AdminServer", "Keyed"]
