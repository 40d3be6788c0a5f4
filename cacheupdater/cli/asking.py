"""How a command asks the running updater: a request at the admin address of the configuration.

`freshness`, `explain`, `quarantine` and `reload` use it. Each error names the next step.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cacheupdater.config.addresses import TcpAddress, UnixAddress

ANSWER_S = 5.0  # an updater that does not answer within this is in trouble
PATIENT_ANSWER_S = 30.0  # for a reload: loaders are imported, and statements under way end
_STRANGE = "{} answers, but not as an updater: is it the right address?"
_TOKENLESS = (
    "wants a token: let admin.token_file name a file, in this configuration and in the updater's,"
    " and start the updater again"
)
_REFUSED = (
    "refuses the token in admin.token_file: the file must be the one that the updater names, and"
    " if the token has changed since the updater started, start the updater again"
)
_ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  the address it listens on: the address that reaches it


def address_of(file: str, admin: TcpAddress | UnixAddress | None) -> str:
    """The address at which the updater of this configuration answers. Raises Misconfigured if there is none."""
    from cacheupdater.errors import Misconfigured

    if admin is None:
        raise Misconfigured(
            f"{file}: admin is not configured, so the updater cannot be asked;"
            " write `admin: {listen: 127.0.0.1:9464}` and start the updater again"
        )
    host, _, port = admin.host_port.rpartition(":")
    if port == "0":
        raise Misconfigured(f"{file}: admin.listen has port 0, so its port is not known; write a number")
    host = host.strip("[]")
    host = _ANYWHERE.get(host, host)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def asked(
    address: str, page: str, *, token: str | None = None, method: str = "GET", within: float = ANSWER_S
) -> Mapping[str, object]:
    """The updater's page; a POST changes something. Raises Unavailable, or Misconfigured for a wrong token."""
    import http.client

    from cacheupdater.errors import Misconfigured, Unavailable

    connection = http.client.HTTPConnection(address, timeout=within)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        connection.request(method, page, headers=headers)
        answer = connection.getresponse()
        body = answer.read()
        if answer.status == http.HTTPStatus.UNAUTHORIZED:
            raise Misconfigured(f"{address} {_REFUSED if token else _TOKENLESS}")
        if answer.status != http.HTTPStatus.OK:
            raise Unavailable(
                f"{address} answers {answer.status} {answer.reason}: is it the updater's admin address?"
            )
        said = json.loads(body)
    except (OSError, http.client.HTTPException) as e:
        raise Unavailable(f"no updater answers at {address} ({e}); is it running?") from e
    except ValueError as e:
        raise Unavailable(_STRANGE.format(address)) from e
    finally:
        connection.close()
    if not isinstance(said, dict):
        raise Unavailable(_STRANGE.format(address))
    return said
