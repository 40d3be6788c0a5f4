"""The error of calls to the simulated Redis."""


class Lost(Exception):
    """The connection failed; whether the command has happened is unknown."""
