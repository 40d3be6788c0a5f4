"""Addresses that the charts refuse: one that holds a password, and one of Kafka that the updater itself would refuse.

No refusal repeats a password, because logs of pipelines keep what Helm prints. What the charts know of Kafka's addresses is
compared here with the grammar in Python.
"""

from __future__ import annotations

import pytest
from kube import sidecar_chart
from kube.chart_tools import CHART, template

from cacheupdater.config import queues
from cacheupdater_client.protocol import broker
from cacheupdater_client.transports import link_to

SECRET = "s3cret"
QUEUE, CACHE, SOURCE = "config.queue.url", "config.cache.url", "config.sources.main.url"
FEED = "config.sources.main.changes.debezium.url"
COLLECT = "collect.queue"
BASES = {QUEUE: "kafka", CACHE: "memory", SOURCE: "memory", FEED: "memory", COLLECT: "collect-spill"}
PASSWORDS = [
    (QUEUE, f"kafka://k:9092/hints?sasl=PLAIN&username=u&password={SECRET}"),
    (QUEUE, f"kafka://u:{SECRET}@k:9092/hints"),
    (QUEUE, f"redis://:{SECRET}@queue:6379/0?stream=hints"),
    (QUEUE, f"redis+sentinel://s1:26379/main/0?stream=hints&sentinel_password={SECRET}"),
    (QUEUE, f"postgresql+asyncpg://u:{SECRET}@db:5432/hints"),
    (CACHE, f"redis://:{SECRET}@redis:6379/0"),
    (CACHE, f"redis://:{SECRET}$$1@redis:6379/0"),  # $$ is a plain $, and no variable
    (CACHE, f"redis://:${{P:-{SECRET}}}@redis:6379/0"),
    (CACHE, f"${{REDIS_URL:-redis://:{SECRET}@redis:6379/0}}"),
    (CACHE, f"redis://redis:6379/0?password={SECRET}"),
    (SOURCE, f"postgresql+asyncpg://u:{SECRET}@db/shop"),
    (SOURCE, f"mysql+aiomysql://db/shop?passwd={SECRET}"),
    (SOURCE, f"postgresql://u:{SECRET}@db/shop"),  # names no driver: the schema would repeat it
    (SOURCE, f"u:{SECRET}@db/shop"),
    (QUEUE, f"redis://:{SECRET}@queue:6379/0"),  # names no stream
    (FEED, f"kafka://u:{SECRET}@k:9092"),
    (FEED, f"kafka://k:9092?sasl=PLAIN&tls=true&username=u&password={SECRET}"),
    (COLLECT, f"kafka://u:{SECRET}@k:9092/hints"),
    (COLLECT, f"kafka://k:9092/hints?sasl=PLAIN&tls=true&username=u&password={SECRET}"),
    (COLLECT, f"redis://:{SECRET}@queue:6379/0?stream=hints"),
]
BY_VARIABLE = [
    (QUEUE, "redis://:${P}@queue:6379/0?stream=hints"),
    (CACHE, "redis://${U}:${P:?the password is missing}@redis:6379/0"),
    (CACHE, "redis://${U:-shop}:${P}@redis:6379/0"),
    (CACHE, "redis://redis:6379/0?password=${P}"),
    (COLLECT, "redis://:$(P)@queue:6379/0?stream=hints"),
]


def spelled(url):
    """For `--set`, which reads a comma as the end of a value."""
    return url.replace(",", "\\,")


def answered(place, url):
    """By the chart, to this one address beside values that work."""
    values = [f"{place}={spelled(url)}"]
    values += [f"{FEED.replace('.url', '.prefix')}=shop"] if place == FEED else []
    options = [f"--set-string={each}" for each in values]
    return template("--values", CHART / f"ci/{BASES[place]}-values.yaml", *options)


@pytest.mark.parametrize(("place", "url"), PASSWORDS)
def test_a_password_is_refused_wherever_it_stands_and_is_not_repeated(place, url):
    done = answered(place, url)
    assert done.returncode != 0
    (line,) = [each for each in done.stderr.splitlines() if f"  - {place}: holds a " in each]
    instead = "&password_file=/run/secrets/cacheupdater/NAME" if url.startswith("kafka") else "(NAME)"
    assert f"write {'?sasl=' if url.startswith('kafka') else '$'}" in line
    assert instead.replace("(NAME)", "(NAME)" if place == COLLECT else "{NAME}") in line
    assert "name the Secret that has NAME in existingSecret.name" in line
    assert SECRET not in done.stderr


@pytest.mark.parametrize(("place", "url"), BY_VARIABLE)
def test_a_password_that_a_variable_brings_is_let_through(place, url):
    done = answered(place, url)
    assert "holds a" not in done.stderr


@pytest.fixture(scope="module")
def consumer(tmp_path_factory):
    return sidecar_chart.packed(tmp_path_factory.mktemp("consumer"))


def answered_beside(consumer, place, url):
    """By the library chart, in the chart of an application."""
    prefix = "cacheupdater-sidecar."
    collects = (
        [f"--set={prefix}role=collect", f"--set={prefix}config=null"] if place.startswith("collect") else []
    )
    said = f"{prefix}{place.replace('.main.', '.shop.')}={spelled(url)}"
    return sidecar_chart.template(consumer, *collects, f"--set-string={said}")


@pytest.mark.parametrize(("place", "url"), PASSWORDS)
def test_the_sidecar_refuses_a_password_and_does_not_repeat_it(consumer, place, url):
    done = answered_beside(consumer, place, url)
    assert done.returncode != 0
    said = "a sidecar takes hints from its pod's socket" if place == QUEUE else "holds a "
    assert said in done.stderr
    assert SECRET not in done.stderr


WRONG_BROKERS = [
    ("kafka://k/hints", "names a broker without its port, or not as host:port; write kafka://host:9092"),
    ("kafka://k:9092,j/hints", "names a broker without its port"),
    ("kafka://k:9092/hints?sesion_timeout=5s", "has an unknown option; there are "),
    ("kafka://k:9092/hints?acks=all&enable_auto_commit=true", "has an unknown option; there are "),
    (
        "kafka://k:9092/hints?sasl=PLAIN&username=u&password_file=/run/secrets/cacheupdater/P",
        "has sasl=PLAIN without TLS, which would send the password as it is; add tls=true or ca=",
    ),
]


@pytest.mark.parametrize("place", [QUEUE, COLLECT])
@pytest.mark.parametrize(("url", "said"), WRONG_BROKERS)
def test_an_address_of_kafka_is_refused_as_the_updater_refuses_it(place, url, said):
    done = answered(place, url)
    assert done.returncode != 0
    assert f"  - {place}: {said}" in done.stderr
    with pytest.raises(
        ValueError, match=r"host:port|unknown option|did you mean|sasl=PLAIN|enable_auto_commit"
    ):
        queues.queue_url(url) if place == QUEUE else link_to(url)()


def test_the_address_of_a_feed_is_read_like_that_of_a_queue():
    done = answered(FEED, "kafka://k:9092?group=shop")
    assert f"  - {FEED}: has an unknown option; there are ca, cert, key, " in done.stderr
    with pytest.raises(ValueError, match="unknown option"):
        queues.brokers_url("kafka://k:9092?group=shop")


@pytest.mark.parametrize(("url", "said"), WRONG_BROKERS)
def test_a_sidecar_that_collects_refuses_the_same_addresses(consumer, url, said):
    done = answered_beside(consumer, COLLECT, url)
    assert done.returncode != 0
    assert f"cacheupdater-sidecar: collect.queue: {said}" in done.stderr


def test_the_chart_knows_the_options_that_the_updater_and_the_collector_know():
    known = {
        QUEUE: [*broker.SECURITY, *queues.OPTIONS],
        FEED: [*broker.SECURITY],
        COLLECT: [*broker.SECURITY, "acks", "compression"],
    }
    for place, names in known.items():
        done = answered(place, f"kafka://k:9092{'' if place == FEED else '/hints'}?unheard=of")
        assert f"has an unknown option; there are {', '.join(sorted(names))}\n" in done.stderr


@pytest.mark.parametrize(
    "url",
    [
        "kafka://[::1]:9092,k-2:9092/hints?SESSION",
        "kafka://${BROKERS}/hints?SESSION",
        "kafka://k:${PORT}/hints?SESSION",
        "kafka://k:9092/hints?${OPTIONS}",
        "kafka://k:9092/hints?sasl=PLAIN&tls=${TLS}&username=u&password_file=/var/run/p&SESSION",
        "${QUEUE_URL}",
    ],
)
def test_what_only_the_pod_knows_of_an_address_is_left_to_the_updater(url):
    done = answered(QUEUE, url.replace("SESSION", "session_timeout=${SESSION}"))
    assert done.returncode == 0, done.stderr
