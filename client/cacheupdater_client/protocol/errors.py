"""What the protocol refuses. The service and the client turn these into errors of their own where they meet them."""

from __future__ import annotations


class Misspelled(ValueError):
    """A key pattern that cannot work; a person must change it."""


class Inexpressible(ValueError):
    """A value that an encoding, or captures that a key, cannot hold. The text names columns and types, never a value."""
