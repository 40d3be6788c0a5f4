"""The address of a Kafka topic: the grammar of kafka:// URLs, and TLS and SASL from files.

    kafka://host:9092,host:9092/topic?option=value&...

The client's transport and the service's queue read the same URL, so one page documents both; each names the options
that it adds (`parse`). `connection` turns an address into the arguments of every aiokafka client. A URL appears in process
lists and logs, so it names passwords and tokens by file only. The files are read when a connection is made.

Parsing never imports aiokafka; the callers of `connection` do.
"""

from __future__ import annotations

import errno
import re
import ssl
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import parse_qsl, unquote

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

FORM = "kafka://host:9092,host:9092/topic"
PACKAGES = "'aiokafka[zstd]>=0.14,<0.15' 'zstandard>=0.23'"
"""What pip installs for Kafka, on both sides: the packages of the extra `kafka`, which any index has."""

CLUSTER_FORM = "kafka://host:9092,host:9092"
SERVERS_MAX = 32  # any one of them suffices to find the others
SECURITY = ("ca", "cert", "key", "tls", "sasl", "username", "password_file", "token_file")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
SECRET_BYTES_MAX = 64 * 1024  # a token is a few kilobytes; a larger file was named by mistake
# The broker shows it in its logs and uses it for quotas. For clients without a name of their own.
CLIENT_ID = "cacheupdater"

# not urlsplit: newer Pythons, and patched older ones, take brackets for one host alone and refuse "a:1,[::1]:2"
_URL = re.compile(
    r"kafka://(?P<servers>[^/?#]*)(?:/(?P<topic>[^?#]*))?(?:\?(?P<options>[^#]*))?", re.IGNORECASE
)
_SERVER = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


class Address(NamedTuple):
    """One topic of one cluster, and how to reach it."""

    servers: tuple[str, ...]
    topic: str  # empty, if the cluster alone is meant
    options: Mapping[str, str]

    def __str__(self) -> str:
        return f"kafka://{','.join(self.servers)}/{self.topic}"

    def __repr__(self) -> str:
        return f"Address({self})"  # the options name the user


def parse(url: str, *, options: Collection[str] = ()) -> Address:
    """The address that a URL names; ValueError says what is wrong. `options` are allowed beside those of TLS and SASL."""
    address = _parsed(url, options, FORM)
    if not _TOPIC.fullmatch(address.topic) or address.topic in {".", ".."}:
        raise ValueError(f"names no topic, or one that Kafka does not allow; write {FORM}")
    return address


def parse_cluster(url: str) -> Address:
    """The cluster that a URL without a topic names; ValueError says what is wrong."""
    address = _parsed(url, (), CLUSTER_FORM)
    if address.topic:
        raise ValueError(f"names a topic, and several are read; write {CLUSTER_FORM}")
    return address


def _parsed(url: str, options: Collection[str], form: str) -> Address:
    parts = _URL.fullmatch(url)
    if parts is None:
        raise ValueError(f"write {form}")
    if "@" in parts["servers"]:
        raise ValueError("holds a user or password; write ?sasl=SCRAM-SHA-512&username=...&password_file=...")
    servers = tuple(parts["servers"].split(","))
    if len(servers) > SERVERS_MAX or not all(map(_is_server, servers)):
        raise ValueError(f"names no brokers, or not as host:port; write {form}")
    said = _options(parts["options"] or "", {*SECURITY, *options})
    _check_security(said)
    return Address(servers, unquote(parts["topic"] or ""), said)


def _is_server(text: str) -> bool:
    return bool(_SERVER.fullmatch(text)) and 0 < int(text.rpartition(":")[2]) <= 65_535


def _options(query: str, known: Collection[str]) -> dict[str, str]:
    said: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name not in known:
            close = get_close_matches(
                name, known, n=1
            )  # any other name may be a piece of what should be secret
            said_so = (
                f"has an option {name!r}; did you mean {close[0]!r}?" if close else "has an unknown option;"
            )
            raise ValueError(f"{said_so} there are {', '.join(sorted(known))}")
        if name in said or not value:
            raise ValueError(f"has the option {name!r} {'twice' if name in said else 'without a value'}")
        said[name] = value
    return said


def _check_security(said: Mapping[str, str]) -> None:
    mechanism = said.get("sasl", "").upper()
    if "key" in said and "cert" not in said:
        raise ValueError("has a key without its cert")
    if said.get("tls", "true") not in {"true", "false"}:
        raise ValueError("tls must be true or false")
    if said.get("tls") == "false" and {"ca", "cert"} & said.keys():
        raise ValueError("has tls=false and a ca or cert; leave one of them out")
    if not mechanism:
        if {"username", "password_file", "token_file"} & said.keys():
            raise ValueError(f"has a user without sasl; there are {', '.join(MECHANISMS)}")
        return
    if mechanism not in MECHANISMS:
        raise ValueError(f"does not know this sasl; there are {', '.join(MECHANISMS)}")
    needed = {"token_file"} if mechanism == "OAUTHBEARER" else {"username", "password_file"}
    if not needed <= said.keys():
        raise ValueError(f"has sasl={mechanism} without {' and '.join(sorted(needed - said.keys()))}")
    if mechanism == "PLAIN" and not uses_tls(said):
        raise ValueError("has sasl=PLAIN without tls=true, which would send the password as it is")


def uses_tls(options: Mapping[str, str]) -> bool:
    """Whether an option says so, or a certificate implies it."""
    return options.get("tls") == "true" or bool({"ca", "cert"} & options.keys())


def connection(address: Address) -> dict[str, object]:
    """Arguments of AIOKafkaProducer, AIOKafkaConsumer and AIOKafkaAdminClient. OSError or ValueError if a file is bad."""
    said = address.options
    tls, mechanism = uses_tls(said), said.get("sasl", "").upper()
    wanted: dict[str, object] = {
        "bootstrap_servers": list(address.servers),
        "client_id": CLIENT_ID,
        "security_protocol": f"{'SASL_' if mechanism else ''}{'SSL' if tls else 'PLAINTEXT'}",
    }
    if tls:
        wanted["ssl_context"] = _context(said)
    if mechanism == "OAUTHBEARER":
        wanted |= {"sasl_mechanism": mechanism, "sasl_oauth_token_provider": _tokens(said["token_file"])}
    elif mechanism:
        secret = _secret(said["password_file"])
        wanted |= {
            "sasl_mechanism": mechanism,
            "sasl_plain_username": said["username"],
            "sasl_plain_password": secret,
        }
    return wanted


def _context(said: Mapping[str, str]) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=said.get("ca"))
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if "cert" in said:
        context.load_cert_chain(said["cert"], said.get("key"))
    return context


def _secret(path: str) -> str:
    """A file's text without its last line end, which editors add."""
    data = Path(path).read_bytes()
    if not data.strip() or len(data) > SECRET_BYTES_MAX:
        raise ValueError(f"{path} is empty, or too large for a secret")
    return data.decode().rstrip("\r\n")


def _tokens(path: str) -> object:
    """Reads the token from its file at each connection, so a token is renewed by writing the file."""
    from aiokafka.abc import AbstractTokenProvider  # noqa: PLC0415  the caller has aiokafka, a parser need not

    class FileTokens(AbstractTokenProvider):  # type: ignore[misc]  # aiokafka has no types
        async def token(self) -> str:
            try:
                return _secret(path)
            except ValueError as e:  # empty for a moment: aiokafka tries an OSError again, and ends its own task with any other
                raise OSError(errno.EINVAL, str(e), path) from e

    return FileTokens()
