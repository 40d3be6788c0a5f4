"""The probes of a real updater, while strangers hold any number of connections to its admin address.

Kubernetes ends a pod whose `/livez` fails three times. A stranger that can reach the port must not be able to cause that.
"""

from __future__ import annotations

import contextlib
import select
import socket
import sys
import threading
import time

import pytest
from live.updater_process import config
from suite.pace import PATIENCE_S, Metronome

pytestmark = pytest.mark.live

CROWD = 40
ASKED = 50
PROBE_S = 1.0  # what Kubernetes gives a probe by default
LATE = 5  # wake-ups until an answer is here: of the crowd, of the updater, and of the probe
NAMESPACES = {
    "raising": {"key": "raising:{id:int}", "load": {"source": "code", "python": "live.loaders:raising"}}
}


@pytest.fixture
def updater(updaters, redis_url):
    return updaters.start(config(redis_url, {"code": {"budget": "10/s"}}, NAMESPACES))


@pytest.fixture
def crowd(updater):
    """crowd(say, *addresses): connections of each that say this and then nothing, opened anew as they are closed."""
    ended = threading.Event()
    crowds = []

    def start(say, *addresses):
        for address in addresses:
            crowds.append(
                threading.Thread(target=_hold, args=(updater.port, address, say, ended), daemon=True)
            )
            crowds[-1].start()

    yield start
    ended.set()
    for each in crowds:
        each.join()


def _hold(port, address, say, ended):
    held = []
    while not ended.is_set():
        with contextlib.suppress(OSError):
            while len(held) < CROWD:
                held.append(socket.create_connection(("127.0.0.1", port), 1, source_address=(address, 0)))
                held[-1].sendall(say)
        closed, _, _ = select.select(held, [], [], 0.01)
        for each in closed:
            each.close()
            held.remove(each)
    for each in held:
        each.close()


def answered(updater, source="127.0.0.1"):
    """How many of the kubelet's probes succeed. A machine that wakes us late has so much longer to answer."""
    took = []
    with Metronome() as machine:
        for _ in range(ASKED):
            with contextlib.suppress(OSError):
                took.append(_probed(updater, source))
            time.sleep(0.02)  # so that the crowd can take what became free
    return sum(each <= PROBE_S + LATE * machine.latest for each in took)


def _probed(updater, source):
    """Seconds until the answer came. Raises OSError if none came."""
    began = time.monotonic()
    place = ("127.0.0.1", updater.port)
    with socket.create_connection(place, PATIENCE_S, source_address=(source, 0)) as probe:
        probe.sendall(b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        if not probe.recv(100).startswith(b"HTTP/1.1 200 "):
            raise ConnectionError("there was no answer")
    return time.monotonic() - began


def test_livez_answers_every_time_while_one_address_holds_forty_idle_connections(updater, crowd):
    """The probe comes from the same address: here there is only this machine."""
    crowd(b"", "127.0.0.1")
    assert answered(updater) == ASKED
    assert "admin: 127.0.0.1 holds too many connections" in updater.log


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a network of loopback addresses")
def test_livez_answers_every_time_while_ten_strangers_hold_forty_connections_each(updater, crowd):
    crowd(b"GET /metrics HTTP/1.1\r\n", *(f"127.0.0.{n}" for n in range(10, 20)))
    assert answered(updater) == ASKED
