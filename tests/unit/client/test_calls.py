"""The helpers of the cluster clients in `calls`: shares of the nodes, and tokens of several clocks."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from redis.exceptions import SlotNotCoveredError

from cacheupdater_client import calls
from cacheupdater_client.protocol.fence import SCRIPT_KEYS_MAX, token_of


@dataclass
class Node:
    """As redis-py's: two are equal if their names are. With redis-py 6 a node has no hash, and neither has this one."""

    name: bytes


def owner_of(name):
    if name.startswith(b"?"):
        raise SlotNotCoveredError
    return Node(name[:1])


def test_each_owner_gets_its_keys_once_and_no_more_at_a_time_than_a_call_may_carry():
    names = [b"a1", b"b1", b"a2", b"a1", *(b"c%d" % number for number in range(SCRIPT_KEYS_MAX + 1))]
    shares = list(calls.by_owner(names, owner_of))
    assert [(owner, len(share)) for owner, share in shares] == [
        (Node(b"a"), 2),
        (Node(b"b"), 1),
        (Node(b"c"), SCRIPT_KEYS_MAX),
        (Node(b"c"), 1),
    ]
    assert shares[0] == (Node(b"a"), [b"a1", b"a2"])


def test_key_without_a_known_owner_is_left_to_redis_py():
    assert list(calls.by_owner([b"?", b"a"], owner_of)) == [(None, [b"?"]), (Node(b"a"), [b"a"])]


@pytest.mark.parametrize("times", [[(7, 5), (6, 999_999), ("8", b"0")], [(6, 999_999)]])
def test_token_of_several_clocks_is_that_of_the_slowest(times):
    assert calls.earliest(times) == token_of(6, 999_999)
