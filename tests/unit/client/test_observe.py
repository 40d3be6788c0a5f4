"""Errors among a pipeline's replies: a write that certainly did not happen leaves no hint, one that may have happens a change."""

from __future__ import annotations

import pytest
from redis import ConnectionError as Lost
from redis.exceptions import ClusterError, MovedError, ResponseError

from cacheupdater_client.observe import Nowhere, returned
from cacheupdater_client.protocol.wire import CHANGE


class Heard(Nowhere):
    def __init__(self):
        self.hints = []

    def add_all(self, kind, keys):
        self.hints += [(kind, key) for key in keys]


@pytest.mark.parametrize(
    ("words", "reply", "hints"),
    [
        (("SET", "k", 1), Lost(), [(CHANGE, "k")]),
        (("SET", "k", 1), ClusterError("TTL exhausted."), [(CHANGE, "k")]),
        (("SET", "k", 1), ResponseError("OOM"), []),
        (("SET", "k", 1), MovedError("1 127.0.0.1:1"), []),
        (("GET", "k"), Lost(), []),
        (("GET", "k"), ResponseError("WRONGTYPE"), []),
    ],
)
def test_error_as_a_reply_leaves_a_change_only_where_something_may_have_been_written(words, reply, hints):
    heard = Heard()
    returned(heard, words, reply)
    assert heard.hints == hints
