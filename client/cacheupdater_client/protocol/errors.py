"""What the protocol refuses. The service and the client turn these into errors of their own where they meet them."""

from __future__ import annotations


class Misspelled(ValueError):
    """A key pattern that cannot work; a person must change it."""


class Misdeclared(ValueError):
    """A declared value that cannot work. The text begins with the file and the line of its loader."""


class Inexpressible(ValueError):
    """A value that an encoding, or captures that a key, cannot hold. The text names columns and types, never a value."""
