"""Ports for servers: free, different, and not among those that the system gives to outgoing connections."""

from __future__ import annotations

import random
import socket
from pathlib import Path

import pytest

from cacheupdater.local import ports
from cacheupdater.local.ports import free_port, free_ports, is_free

OUTGOING = Path("/proc/sys/net/ipv4/ip_local_port_range")


@pytest.mark.skipif(not OUTGOING.exists(), reason="only Linux says which ports outgoing connections get")
def test_no_outgoing_connection_gets_such_a_port():
    lowest = int(OUTGOING.read_text().split()[0])
    assert all(port < lowest for port in free_ports(100))


def test_processes_with_one_seed_draw_different_ports():
    drawn = []
    for _ in range(2):
        random.seed(4)
        drawn.append(free_ports(20))
    assert drawn[0] != drawn[1]


def test_a_port_that_was_drawn_is_not_drawn_again_soon_though_nobody_listens_there_yet():
    assert len({free_port() for _ in range(50)}) == 50


def test_processes_that_begin_one_after_the_other_draw_from_parts_of_their_own(monkeypatch):
    drawn = []
    for process in range(20):
        monkeypatch.setattr(ports.os, "getpid", lambda process=process: 4_000 + process)
        drawn += [free_port() for _ in range(20)]
    assert len(set(drawn)) == 400


def test_several_ports_are_different():
    assert len(set(free_ports(500))) == 500


def test_a_port_on_which_somebody_listens_is_passed_over(monkeypatch):
    with socket.socket() as server:
        taken = free_port()
        server.bind(("127.0.0.1", taken))
        assert not is_free(taken)
        monkeypatch.setattr(ports, "_PORTS", range(taken, taken + 1))
        with pytest.raises(
            RuntimeError, match=f"1 free port is asked for, and there are 0 from {taken} to {taken}"
        ):
            free_port()


def test_more_ports_than_are_free_are_refused_and_not_waited_for(monkeypatch):
    first = ports._PORTS[0]
    monkeypatch.setattr(ports, "_PORTS", range(first, first + 3))
    with pytest.raises(RuntimeError, match="4 free ports are asked for"):
        free_ports(4)
