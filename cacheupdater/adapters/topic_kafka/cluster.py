"""Requests to a Kafka cluster: connect, send requests to its brokers, and say in our words why the cluster does not answer.

`reached` connects for one command of an operator, and disconnects at its end. Every step has a time limit. aiokafka hides why
a bootstrap failed, so each server of the address is tried by itself first. The operator must know whether the login was
refused, the certificate is not trusted, or the broker is down.

`Misconfigured` means that a person must change something; `Unavailable` may pass by itself. The callers interpret the answers.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from aiokafka.client import AIOKafkaClient
from aiokafka.conn import AIOKafkaConnection, collect_hosts
from aiokafka.errors import (
    IllegalSaslStateError,
    IncompatibleBrokerVersion,
    KafkaConnectionError,
    KafkaError,
    NodeNotReadyError,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanismError,
)

from cacheupdater import masking
from cacheupdater.errors import Misconfigured, Unavailable
from cacheupdater_client.protocol.broker import connection, uses_tls

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from aiokafka.protocol.api import Request, Response

    from cacheupdater_client.protocol.broker import Address

REACH_S = 5.0  # to reach one server: connect, TLS, login; a broker across the world needs less than two
ANSWER_S = 5.0  # for one answer; a broker that needs longer is in trouble
FAREWELL_S = (
    1.0  # to close; a TLS connection to a frozen broker would wait half a minute for the broker's close
)


class Cluster:
    """A cluster that answers requests."""

    def __init__(self, client: Any, usual: int, silent: Sequence[str]) -> None:
        self._client = client
        self._usual = usual
        self.silent = silent
        """Why some servers of the address did not answer, although others did."""

    async def ask(self, request: Request[Any], *, broker: int | None = None) -> Response:
        """The answer of this broker. By default the same broker is always asked, so that its answers agree with earlier ones."""
        node = self._usual if broker is None else broker
        named = _named(self._client, node)
        try:
            async with asyncio.timeout(ANSWER_S):
                answer: Response = await self._client.send(node, request)
        except NodeNotReadyError as e:
            raise Unavailable(_ASTRAY.format(named)) from e
        except TimeoutError as e:
            raise Unavailable(f"{named} did not answer within {ANSWER_S:g} s") from e
        except IncompatibleBrokerVersion as e:
            raise Misconfigured(f"the brokers do not know this request: {masking.foreign(str(e))}") from e
        except KafkaError as e:
            raise Unavailable(f"{named} cannot answer now: {masking.foreign(str(e))}") from e
        return answer

    def controller(self) -> int | None:
        """The broker that makes new topics."""
        found = self._client.cluster.controller
        return None if found is None else int(found.nodeId)

    @property
    def brokers(self) -> int:
        return len(self._client.cluster.brokers())


@asynccontextmanager
async def reached(address: Address) -> AsyncIterator[Cluster]:
    """The cluster, within the block. Misconfigured or Unavailable say why the cluster cannot be reached."""
    try:
        how = connection(address)
    except (OSError, ValueError) as e:
        raise Misconfigured(f"a file that the URL names cannot be used: {_plain(e)}") from e
    troubles = await asyncio.gather(*(_tried(server, address, how) for server in address.servers))
    usable = [server for server, trouble in zip(address.servers, troubles, strict=True) if trouble is None]
    failed = [trouble for trouble in troubles if trouble is not None]
    if not usable:
        # a wrong setting explains more than another broker that is down
        raise next((each for each in failed if isinstance(each, Misconfigured)), failed[0])
    client = AIOKafkaClient(**how | {"bootstrap_servers": usable}, request_timeout_ms=int(ANSWER_S * 1000))
    try:
        await _bootstrapped(client, address)
        yield Cluster(client, await _reachable(client), [str(each) for each in failed])
    finally:
        with suppress(TimeoutError):
            async with asyncio.timeout(FAREWELL_S):
                await client.close()


async def _bootstrapped(client: Any, address: Address) -> None:
    try:
        async with asyncio.timeout(REACH_S):
            await client.bootstrap()
    except TimeoutError as e:
        raise Unavailable(f"the brokers of {address} did not answer within {REACH_S:g} s") from e
    except KafkaConnectionError as e:
        if "sasl" in address.options:
            raise Unavailable(f"the brokers of {address} went away: {masking.foreign(str(e))}") from e
        # the broker has just answered the only request that needs no login
        raise Misconfigured(
            f"the brokers of {address} end the connection: they want a login; {_LOGIN}"
        ) from e
    if client.cluster.brokers():
        return
    if address.options.get("sasl", "").upper() == "OAUTHBEARER":
        # aiokafka takes the broker's first rejection of a token for a success, and the next answer is then empty
        raise Misconfigured(f"the brokers of {address} refuse the login: the token is not right")
    raise Unavailable(f"the brokers of {address} do not say who they are")


async def _reachable(client: Any) -> int:
    """A broker that the cluster names and that can be reached."""
    nodes = sorted(each.nodeId for each in client.cluster.brokers())
    for node in nodes:
        with suppress(TimeoutError):
            async with asyncio.timeout(REACH_S):
                if await client.ready(node):
                    return int(node)
    raise Unavailable(_ASTRAY.format(", ".join(_named(client, node) for node in nodes) or "no broker"))


def _named(client: Any, node: int) -> str:
    found = client.cluster.broker_metadata(node)
    return f"broker {node}" if found is None else f"{found.host}:{found.port}"


async def _tried(server: str, address: Address, how: dict[str, Any]) -> Misconfigured | Unavailable | None:
    """Why this server cannot be used; None if it can."""
    [(host, port, _)] = collect_hosts([server], randomize=False)
    said = {name: value for name, value in how.items() if name != "bootstrap_servers"}
    trying = AIOKafkaConnection(host, port, request_timeout_ms=int(REACH_S * 1000), **said)
    trouble = None
    try:
        async with asyncio.timeout(REACH_S):
            await trying.connect()
    except (ConnectionError, ssl.SSLError, socket.gaierror) as e:
        return _explained(server, address, e)  # no connection was made, so none has to be closed
    except (OSError, ValueError, KafkaError) as e:
        trouble = _explained(server, address, e)
    with suppress(TimeoutError):
        async with asyncio.timeout(FAREWELL_S):
            await trying.close()
    return trouble


_LOGIN = "write ?sasl=SCRAM-SHA-512&username=...&password_file=..."
_ASTRAY = (
    "the cluster names {}, which cannot be reached from here:"
    " the broker is down, or its advertised.listeners names an address for other machines"
)
_TLS = "is this the port for TLS, and are tls, ca, cert and key in the URL right?"


def _explained(server: str, address: Address, error: Exception) -> Misconfigured | Unavailable:
    """The error for one server's failure: Misconfigured if a person must act, else Unavailable."""
    # aiokafka wraps the error that ended a connection in an error of its own
    mistakes = (_mistake(each, address) for each in (error, error.__cause__))
    if wrong := next(filter(None, mistakes), None):
        return Misconfigured(f"{server} {wrong}")
    if isinstance(error, ValueError) or getattr(error, "filename", None):  # a server's proof, a token's file
        return Misconfigured(f"the login at {server} fails: {_plain(error)}")
    if isinstance(error, KafkaConnectionError):
        return Misconfigured(f"{server} closes the connection at once: {_TLS}")
    return Unavailable(_silence(server, error))


def _mistake(error: BaseException | None, address: Address) -> str | None:
    """What a person must change; None if the error is no mistake of the configuration."""
    sasl = address.options.get("sasl", "")
    secret = "token" if sasl.upper() == "OAUTHBEARER" else "username or password"
    match error:
        case SaslAuthenticationFailed():
            said = f"refuses the login: the {secret} is not right, or not for sasl={sasl}"
        case UnsupportedSaslMechanismError():
            said = f"knows no login by sasl={sasl}; {_LOGIN}"
        case IllegalSaslStateError():
            said = "wants no login on this port: leave out sasl, or name the port that has one"
        case ssl.SSLCertVerificationError():
            said = (
                f"has a certificate that cannot be trusted: {error.verify_message}; name its authority by ca="
            )
        case ssl.SSLError():
            why = (error.reason or "no reason given").lower().replace("_", " ")
            said = f"ends TLS ({why}): {_TLS}"
        case ConnectionResetError() if uses_tls(address.options):
            said = f"ends TLS before it began: {_TLS}"
        case _:
            return None
    return said


def _silence(server: str, error: Exception) -> str:
    match error:
        case TimeoutError():
            return f"{server} did not answer within {REACH_S:g} s"
        case socket.gaierror():
            return f"{server} is a name that cannot be resolved from here"
        case OSError():
            return f"nobody answers at {server} ({_plain(error)}): is the broker running?"
        case _:
            return f"{server} cannot be used now: {masking.foreign(str(error))}"


def _plain(error: object) -> str:
    """The error's own words, with the name of its file."""
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, OSError) and error.errno and not isinstance(error, ssl.SSLError):
        return os.strerror(error.errno)  # asyncio puts the address there
    return masking.foreign(str(error)) or type(error).__name__
