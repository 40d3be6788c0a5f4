"""How an error becomes a finding of `check --connect`: whether a person must act, or waiting may cure it."""

from __future__ import annotations

import pytest

from cacheupdater.adapters.feed_replication import failures
from cacheupdater.service.findings import trouble


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ('FATAL: password authentication failed for user "clerk"', "wrong"),
        ('FATAL: role "clerk" does not exist', "wrong"),
        ('FATAL: no pg_hba.conf entry for host "10.0.0.1", user "clerk"', "wrong"),
        ("connection refused: Connection refused", "away"),
        ("FATAL: the database system is starting up", "away"),
    ],
)
def test_a_login_that_is_refused_without_a_code_is_for_a_person(text, state):
    """libpq gives no code for an error while it connects."""
    found = trouble("feed", "main", failures.of_server(Exception(text)))
    assert found.state == state
