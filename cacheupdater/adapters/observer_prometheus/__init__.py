"""The reports of all stages as Prometheus metrics: see `observer`."""

from cacheupdater.adapters.observer_prometheus.observer import PrometheusObserver

__all__ = ["PrometheusObserver"]
