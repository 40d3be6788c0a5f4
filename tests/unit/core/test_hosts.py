"""Whether a host is this machine, without a name look-up."""

from __future__ import annotations

import pytest

from cacheupdater.core.hosts import is_local


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.8.9.1", "::1", "[::1]", "localhost", "LocalHost", "/run/postgresql", "::1%lo"]
)
def test_a_loopback_address_a_socket_and_localhost_are_this_machine(host):
    assert is_local(host)


@pytest.mark.parametrize(
    "host",
    ["", "db", "10.0.0.1", "127.1", "127.0.0.1.example.org", "localhost.", "0.0.0.0", "::", "2001:db8::1"],
)
def test_any_other_host_may_be_anywhere(host):
    assert not is_local(host)
