"""The grammar of kafka:// URLs: what both ends of a topic understand, and what they refuse with a reason."""

from __future__ import annotations

import pytest

from cacheupdater_client.protocol import broker

GOOD = "kafka://a:9092,b:9093/hints"


def test_address_has_servers_topic_and_options():
    address = broker.parse("kafka://a:9092,[::1]:9093/shop.hints?group=g&tls=true", options=["group"])
    assert address.servers == ("a:9092", "[::1]:9093")
    assert address.topic == "shop.hints"
    assert address.options == {"group": "g", "tls": "true"}
    assert str(address) == "kafka://a:9092,[::1]:9093/shop.hints", "options may name secret files: not shown"


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://a:9092/t", "write kafka://"),
        ("kafka://a:9092/t#x", "write kafka://"),
        ("kafka://u:p@a:9092/t", "holds a user or password"),
        ("kafka:///t", "names no brokers"),
        ("kafka://a/t", "names no brokers"),
        ("kafka://a:0/t", "names no brokers"),
        ("kafka://a:65536/t", "names no brokers"),
        ("kafka://a:9092,/t", "names no brokers"),
        ("kafka://" + ",".join(["a:1"] * 33) + "/t", "names no brokers"),
        ("kafka://a:9092", "names no topic"),
        ("kafka://a:9092/..", "names no topic"),
        ("kafka://a:9092/a/b", "names no topic"),
        ("kafka://a:9092/" + "t" * 250, "names no topic"),
        (GOOD + "?colour=red", "has an unknown option"),
        (GOOD + "?tls=true&tls=true", "'tls' twice"),
        (GOOD + "?ca=", "'ca' without a value"),
        (GOOD + "?tls=maybe", "tls must be true or false"),
        (GOOD + "?tls=false&ca=f", "has tls=false and a ca"),
        (GOOD + "?key=f", "has a key without its cert"),
        (GOOD + "?username=u", "has a user without sasl"),
        (GOOD + "?sasl=GSSAPI", "does not know this sasl"),
        (GOOD + "?sasl=SCRAM-SHA-512&username=u", "without password_file"),
        (GOOD + "?sasl=OAUTHBEARER", "without token_file"),
        (GOOD + "?sasl=PLAIN&username=u&password_file=f", "without tls=true"),
    ],
)
def test_what_is_no_address_is_refused_in_words(url, why):
    with pytest.raises(ValueError, match=why):
        broker.parse(url)


def test_connection_without_options_is_plain():
    wanted = broker.connection(broker.parse(GOOD))
    assert wanted["bootstrap_servers"] == ["a:9092", "b:9093"]
    assert wanted["security_protocol"] == "PLAINTEXT"


def test_password_is_the_text_of_its_file_without_its_line_end(tmp_path):
    file = tmp_path / "password"
    file.write_text("s3 cret\n")
    url = f"{GOOD}?sasl=scram-sha-512&username=u&password_file={file}"
    wanted = broker.connection(broker.parse(url))
    assert (wanted["security_protocol"], wanted["sasl_mechanism"]) == ("SASL_PLAINTEXT", "SCRAM-SHA-512")
    assert (wanted["sasl_plain_username"], wanted["sasl_plain_password"]) == ("u", "s3 cret")


@pytest.mark.parametrize("text", [b"", b"  \n", b"x" * (broker.SECRET_BYTES_MAX + 1)])
def test_file_that_is_no_secret_is_refused(tmp_path, text):
    file = tmp_path / "password"
    file.write_bytes(text)
    with pytest.raises(ValueError, match="empty, or too large"):
        broker.connection(
            broker.parse(f"{GOOD}?sasl=SCRAM-SHA-256&username=u&password_file={file}"),
        )


def test_missing_file_is_an_os_error_that_names_it(tmp_path):
    with pytest.raises(OSError, match="nowhere"):
        broker.connection(
            broker.parse(f"{GOOD}?sasl=SCRAM-SHA-256&username=u&password_file={tmp_path}/nowhere")
        )


def test_tls_is_shown_by_a_file_or_said_and_verifies():
    wanted = broker.connection(broker.parse(GOOD + "?tls=true"))
    assert wanted["security_protocol"] == "SSL"
    assert wanted["ssl_context"].check_hostname


def test_a_cluster_has_no_topic_and_the_same_options():
    address = broker.parse_cluster("kafka://a:9092,b:9093?tls=true")
    assert (address.servers, address.topic, address.options) == (("a:9092", "b:9093"), "", {"tls": "true"})
    assert broker.connection(broker.parse_cluster("kafka://a:9092/"))["bootstrap_servers"] == ["a:9092"]
    with pytest.raises(ValueError, match="names a topic, and several are read"):
        broker.parse_cluster(GOOD)
