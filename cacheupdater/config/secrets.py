"""Addresses that may hold a password, and the file of a token.

A `Url` travels from the file to the adapter that connects. Anything that prints it on the way (a repr, an f-string, a dump,
a log line) shows what `masking.url` lets through: neither user nor password.
"""

from __future__ import annotations

from pathlib import Path

from cacheupdater import masking

TOKEN_BYTES = 16, 4096  # shorter could be guessed, longer is no token


def read_token(path: str) -> str:
    """The first line of a file. Raises ValueError; its message repeats nothing of the file."""
    try:
        with Path(path).open("rb") as file:
            line = file.readline(TOKEN_BYTES[1] + 2).rstrip(b"\r\n")
    except OSError as e:
        raise ValueError(f"{path} cannot be read: {e.strerror}") from e
    least, most = TOKEN_BYTES
    if not least <= len(line) <= most:
        raise ValueError(f"the first line of {path} must have {least} to {most} bytes")
    if not line.isascii() or not line.decode().isprintable() or b" " in line:
        raise ValueError(f"the first line of {path} may hold printable ASCII only, and no space")
    masking.keep_password(line.decode())
    return line.decode()


class Url:
    """A URL whose user and password show only on request."""

    __slots__ = ("__secret",)

    def __init__(self, text: str) -> None:
        self.__secret = text
        masking.keep(text)

    def reveal(self) -> str:
        """The URL as written, for the driver alone."""
        return self.__secret

    @property
    def scheme(self) -> str:
        """What stands before `://`."""
        return self.__secret.partition("://")[0]

    def __str__(self) -> str:
        return masking.url(self.__secret)

    def __repr__(self) -> str:
        return f"Url({masking.url(self.__secret)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Url) and self.__secret == other.__secret

    def __hash__(self) -> int:
        return hash(self.__secret)
