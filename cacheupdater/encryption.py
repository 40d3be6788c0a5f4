"""How a connection to a database is encrypted: makes the TLS context from the settings of a source, or of a queue.

`adapters.loader_sql` calls `context` once per source, and `adapters.depot_sql` once per queue in a PostgreSQL. A context that
verifies checks the name of the server. A context that does not verify protects only against eavesdroppers. Certificates are
read at the start: after a renewal, the process must be started again. Which mode counts without settings is not decided here.
"""

from __future__ import annotations

import ssl
from typing import Literal, NamedTuple

from cacheupdater.errors import Misconfigured

Mode = Literal["off", "on", "verify"]


class Tls(NamedTuple):
    """The settings of the configuration. The files are PEM."""

    mode: Mode
    ca: str | None = None
    cert: str | None = None
    key: str | None = None


def context(tls: Tls) -> ssl.SSLContext | None:
    """The TLS context; None for plain text. Raises Misconfigured, which begins with the setting whose file is wrong."""
    if tls.mode == "off":
        return None
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    if tls.mode == "on":
        made.check_hostname = False
        made.verify_mode = ssl.CERT_NONE
    elif tls.ca is None:
        made.load_default_certs()
    else:
        try:
            made.load_verify_locations(cafile=tls.ca)
        except (OSError, ValueError) as e:
            raise Misconfigured(f"ca: {tls.ca} {_why(e)}") from None
    if tls.cert is not None:
        try:
            made.load_cert_chain(tls.cert, tls.key, password=_no_password)
        except (OSError, ValueError) as e:
            raise Misconfigured(
                f"cert: {tls.cert}{f' with {tls.key}' if tls.key else ''} {_why(e)}"
            ) from None
    return made


def _no_password() -> str:
    """Raises, for otherwise OpenSSL would ask for the password on the terminal."""
    raise ValueError("has a password; write a key without one")


def _why(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return "holds no certificate and key that belong together, or none at all"
    if isinstance(error, OSError):
        return f"cannot be read: {error.strerror}"
    return str(error)
