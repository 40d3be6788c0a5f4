"""What a call over a connection may end with, for everybody who calls the simulated Redis."""


class Lost(Exception):
    """The connection failed; whether the command has happened is unknown."""
