"""Logins and certificates from the files that the URL names, against brokers that demand them, for every part that uses Kafka.

The openssl program makes the certificates; the brokers read them as PEM.
"""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import time
from contextlib import asynccontextmanager
from typing import NamedTuple

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from cacheupdater.adapters import topic_kafka
from cacheupdater.adapters.queue_kafka.member import Member
from cacheupdater.errors import Misconfigured, Unavailable
from cacheupdater.local import kafka_topics
from cacheupdater.local.kafka_server import KafkaServer
from cacheupdater_client.protocol.broker import connection, parse

pytestmark = pytest.mark.usefixtures("needs_apache")


@pytest.fixture(autouse=True)
def unhurried(monkeypatch):
    """A farewell that is given up leaves its connection open until Python collects it."""
    monkeypatch.setattr(topic_kafka.cluster, "FAREWELL_S", 60.0)


_DOOR = "listener.name.client"
_OAUTH = "org.apache.kafka.common.security.oauthbearer"
# The validator that takes unsigned tokens: who may log in is not under test, but what we send
_TOKENS = {
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
    f"{_DOOR}.oauthbearer.sasl.jaas.config": (
        f'{_OAUTH}.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";'
    ),
    f"{_DOOR}.oauthbearer.sasl.server.callback.handler.class": (
        f"{_OAUTH}.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
    ),
}


class Certificates(NamedTuple):
    """An authority and what it has signed, as files."""

    ca: str
    server: str  # key and certificate in one, as brokers want it
    cert: str
    key: str
    other_ca: str


@pytest.fixture(scope="session")
def certificates(tmp_path_factory):
    if shutil.which("openssl") is None:
        pytest.skip("needs the openssl program")
    folder = tmp_path_factory.mktemp("certificates")
    for name in ("ca", "other-ca"):
        extensions = [
            "basicConstraints=critical,CA:TRUE",
            "keyUsage=critical,keyCertSign,cRLSign",
            "subjectKeyIdentifier=hash",
        ]
        openssl(folder, name, "-x509", *(each for line in extensions for each in ("-addext", line)))
    signed(folder, "broker", "subjectAltName=IP:127.0.0.1,DNS:localhost")
    signed(folder, "shop", "extendedKeyUsage=clientAuth")
    both = (folder / "broker.key").read_text() + (folder / "broker.pem").read_text()
    (folder / "both.pem").write_text(both)
    files = ("ca.pem", "both.pem", "shop.pem", "shop.key", "other-ca.pem")
    return Certificates(*(str(folder / name) for name in files))


def openssl(folder, name, *what):
    command = ["openssl", "req", "-newkey", "rsa:2048", "-noenc", "-days", "2", "-subj", f"/CN={name}", *what]
    command += ["-keyout", f"{folder}/{name}.key", "-out", f"{folder}/{name}.pem"]
    subprocess.run(command, check=True, capture_output=True, timeout=60)


def signed(folder, name, extension):
    openssl(folder, name)
    (folder / "ext").write_text(f"{extension}\nauthorityKeyIdentifier=keyid\nsubjectKeyIdentifier=hash\n")
    command = ["openssl", "x509", "-req", "-in", f"{folder}/{name}.pem", "-days", "2", "-CAcreateserial"]
    command += ["-CA", f"{folder}/ca.pem", "-CAkey", f"{folder}/ca.key"]
    command += ["-extfile", f"{folder}/ext", "-out", f"{folder}/{name}.pem"]
    subprocess.run(command, check=True, capture_output=True, timeout=60)


def tls(certificates, **more):
    said = {"keystore.type": "PEM", "keystore.location": certificates.server}
    said |= {"truststore.type": "PEM", "truststore.location": certificates.ca}
    return {f"ssl.{name}": value for name, value in (said | more).items()}


@pytest.fixture(scope="module")
def logins(certificates):
    """A broker that wants TLS and a login of any kind."""
    properties = tls(certificates) | _TOKENS
    with KafkaServer(protocol="SASL_SSL", users={"shop": "s3cret"}, properties=properties) as server:
        kafka_topics.done(kafka_topics.create(server.admin, "hints", partitions=1))
        yield server


@pytest.fixture(scope="module")
def passports(certificates):
    """A broker that wants a certificate of its clients."""
    properties = tls(certificates, **{"client.auth": "required"})
    with KafkaServer(protocol="SSL", properties=properties) as server:
        kafka_topics.done(kafka_topics.create(server.admin, "hints", partitions=1))
        yield server


def address(server, **options):
    said = "&".join(f"{name}={value}" for name, value in options.items())
    return parse(f"kafka://{server.bootstrap}/hints?{said}")


@asynccontextmanager
async def started(client):
    try:
        await client.start()
        yield client
    finally:
        await (client.close() if hasattr(client, "close") else client.stop())


async def spoken(where):
    """What all three kinds of client do with this address: ask, write, read it back."""
    async with started(AIOKafkaAdminClient(**connection(where))) as admin:
        assert where.topic in await admin.list_topics()
    async with started(AIOKafkaProducer(**connection(where))) as producer:
        written = await producer.send_and_wait(where.topic, b"pack", partition=0)
    async with started(AIOKafkaConsumer(**connection(where))) as consumer:
        place = TopicPartition(where.topic, 0)
        consumer.assign([place])
        consumer.seek(place, written.offset)
        assert (await consumer.getone()).value == b"pack"


@pytest.fixture
def password(tmp_path):
    file = tmp_path / "password"
    file.write_text("s3cret\n")
    return file


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512", "scram-sha-512", "PLAIN"])
async def test_a_password_from_a_file_logs_in(logins, certificates, password, mechanism):
    await spoken(address(logins, ca=certificates.ca, sasl=mechanism, username="shop", password_file=password))


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"])
async def test_a_wrong_password_does_not(logins, certificates, password, mechanism):
    password.write_text("wr0ng")
    where = address(logins, ca=certificates.ca, sasl=mechanism, username="shop", password_file=password)
    with pytest.raises(Misconfigured, match="refuses the login") as caught:
        await topic_kafka.inspect(where, "shop")
    assert "wr0ng" not in str(caught.value)


def token(*, expires_in):
    """A token without a signature, as that validator takes it."""
    now = int(time.time())  # noqa: TID251  the broker compares it with its own clock
    claims = {"sub": "shop", "iat": now - 60, "exp": now + expires_in}
    return ".".join([*map(encoded, ({"alg": "none"}, claims)), ""])


def encoded(what):
    return base64.urlsafe_b64encode(json.dumps(what).encode()).rstrip(b"=").decode()


async def test_a_token_is_read_anew_for_each_connection(logins, certificates, tmp_path):
    file = tmp_path / "token"
    where = address(logins, ca=certificates.ca, sasl="OAUTHBEARER", token_file=file)
    how = connection(where)
    file.write_text(token(expires_in=-30))
    with pytest.raises(Misconfigured, match="the token is not right"):
        await topic_kafka.inspect(where, "shop")
    file.write_text(token(expires_in=600) + "\n")  # whoever renews it writes the file again
    async with started(AIOKafkaProducer(**how)) as producer:
        await producer.send_and_wait("hints", b"pack", partition=0)
    await spoken(where)


async def test_a_queue_whose_token_is_refused_says_what_it_waits_for(logins, certificates, tmp_path):
    file = tmp_path / "token"
    file.write_text(token(expires_in=-30))
    where = address(logins, ca=certificates.ca, sasl="OAUTHBEARER", token_file=file)
    member = Member(where, group="shop", session=6.0, instance=None)
    try:
        await member.connect()
        with pytest.raises(Unavailable, match="a token that they refuse"):
            await member.partitions()
    finally:
        await member.close()


async def test_a_token_that_is_not_there_names_its_file(logins, certificates, tmp_path):
    where = address(logins, ca=certificates.ca, sasl="OAUTHBEARER", token_file=tmp_path / "none")
    with pytest.raises(Misconfigured, match="none: No such file"):
        await topic_kafka.inspect(where, "shop")


async def test_a_certificate_of_ones_own_is_shown(passports, certificates):
    mine = {"ca": certificates.ca, "cert": certificates.cert, "key": certificates.key}
    await spoken(address(passports, **mine))
    topic = await topic_kafka.inspect(address(passports, **mine), "shop")
    assert (topic.wrong, topic.away) == ([], [])


async def test_without_a_certificate_the_broker_ends_tls_and_that_is_said(passports, certificates):
    with pytest.raises(Misconfigured, match=r"ends TLS .*are tls, ca, cert and key in the URL right"):
        await topic_kafka.inspect(address(passports, ca=certificates.ca), "shop")


@pytest.mark.parametrize("trusting", ["other", "system"])
async def test_a_broker_that_cannot_be_trusted_is_not_spoken_to(logins, certificates, password, trusting):
    whom = {"ca": certificates.other_ca} if trusting == "other" else {"tls": "true"}
    where = address(logins, **whom, sasl="PLAIN", username="shop", password_file=password)
    with pytest.raises(
        Misconfigured, match=r"certificate that cannot be trusted: .*name its authority by ca="
    ):
        await topic_kafka.inspect(where, "shop")


async def test_a_broker_of_another_name_is_not_spoken_to(passports, certificates):
    other = passports.bootstrap.replace("127.0.0.1", "127.1")  # the same machine, and not what was signed
    with pytest.raises(Misconfigured, match=r"cannot be trusted: .*mismatch"):
        await topic_kafka.inspect(parse(f"kafka://{other}/hints?ca={certificates.ca}"), "shop")


async def test_plain_speech_to_a_door_with_tls_is_told(passports):
    with pytest.raises(Misconfigured, match="is this the port for TLS"):
        await topic_kafka.inspect(address(passports), "shop")
