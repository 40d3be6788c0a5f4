"""What several workers say about one key is what its owner says."""

import json

import pytest

from cacheupdater.errors import Unavailable
from cacheupdater.service.pages import of_the_owner


def body(name, *, ours):
    return json.dumps({"name": name, "ours": ours}).encode()


def test_the_owner_is_heard_and_a_silent_worker_is_passed_over():
    assert of_the_owner([b"", body("other", ours=False), body("owner", ours=True)])["name"] == "owner"


def test_where_none_owns_the_key_any_can_name_who_does():
    assert of_the_owner([b"", body("one", ours=False), body("two", ours=False)])["name"] == "one"


def test_workers_that_are_all_silent_are_an_error():
    with pytest.raises(Unavailable):
        of_the_owner([b"", b""])
