"""Keeps the values in a Redis cache fresh, so that the application does not have to."""

__version__ = "0.1.0"
__all__ = ["__version__"]
