"""Merges pages of several workers into one, even if one of them returns an error or does not answer."""

import json

import pytest

from cacheupdater.errors import Unavailable
from cacheupdater.service.pages import (
    merged_freshness,
    merged_metrics,
    merged_outcomes,
    merged_quarantine,
    merged_warnings,
    of_the_owner,
    summed,
    with_own_top,
)

METRICS = b'# HELP a Some.\n# TYPE a gauge\na{source="main"} 1.0\n'
FRESHNESS = json.dumps(
    {
        "sources": [{"name": "main"}],
        "warnings": [{"event": "redis_down", "subject": ""}],
        "read_ages": [{"name": "product"}],
        "lately": {"hints": 70, "of_nobody": 2, "examples": ["a:1", "a:2"], "looked": 9, "not_in_redis": 1},
        "feeds": [{"source": "main", "reads": False, "waiting": None}],
    }
)


def test_a_worker_that_answers_an_error_is_left_out_of_the_metrics():
    page = merged_metrics(
        {0: (200, METRICS), 1: (500, b"Internal Server Error\n"), 2: (0, b"")}, {0: 0, 1: 4}
    )
    lines = page.decode().splitlines()
    assert 'a{worker="0",source="main"} 1.0' in lines
    assert not any("Server" in line for line in lines)
    assert 'cacheupdater_worker_restarts_total{worker="1"} 4' in lines


TROUBLES = (
    b"# HELP cacheupdater_troubles Troubles.\n# TYPE cacheupdater_troubles gauge\n"
    b'cacheupdater_troubles{event="redis_down"} 1.0\ncacheupdater_troubles{event="worker_down"} 0.0\n'
)


@pytest.mark.parametrize("answer", [(0, b""), (200, TROUBLES)], ids=["is away", "answers, not ready"])
def test_a_worker_that_is_down_counts_as_a_trouble_which_only_the_parent_knows(answer):
    page = merged_metrics({0: answer, 1: (200, TROUBLES)}, {0: 4, 1: 0}, down={0}).decode()
    said = [line for line in page.splitlines() if "worker_down" in line]
    assert said == [
        'cacheupdater_troubles{worker="0",event="worker_down"} 1.0',
        'cacheupdater_troubles{worker="1",event="worker_down"} 0.0',
    ]
    assert 'cacheupdater_troubles{worker="1",event="redis_down"} 1.0' in page
    assert page.count("# TYPE cacheupdater_troubles") == 1


def test_a_worker_that_answers_an_error_is_left_out_of_the_freshness():
    page = merged_freshness({0: (500, b"Internal Server Error\n"), 1: (200, FRESHNESS.encode()), 2: (0, b"")})
    assert page["sources"] == [{"name": "main (1)"}]
    assert page["read_ages"] == [{"name": "product (1)"}]
    assert page["warnings"] == [{"event": "redis_down", "subject": "", "worker": 1}]


def test_the_freshness_of_workers_has_the_hints_of_all_each_feed_once_and_what_only_the_parent_knows():
    reads = {"source": "main", "reads": True, "waiting": 4}
    other = json.dumps({**json.loads(FRESHNESS), "feeds": [reads]})
    down = {"event": "worker_down", "subject": "2"}
    page = merged_freshness(
        {0: (200, FRESHNESS.encode()), 1: (200, other.encode()), 2: (200, FRESHNESS.encode())}, [down]
    )
    assert page["feeds"] == [reads]
    assert page["lately"] == {
        "hints": 210, "of_nobody": 6, "examples": ["a:1", "a:2"], "looked": 27, "not_in_redis": 3
    }  # fmt: skip
    assert page["warnings"][0] == down


def test_warnings_are_those_of_each_worker_that_says_some_ready_or_not():
    said = json.dumps(
        {
            "ready": False,
            "warnings": [{"event": "redis_down", "subject": ""}],
            "read_ages": [{"name": "product"}],
        }
    ).encode()
    old = json.dumps({"ready": True}).encode()
    assert merged_warnings({0: said, 1: b"", 2: old, 3: b"no json"}) == [
        {"event": "redis_down", "subject": "", "worker": 0}
    ]


# --- one key ----


def body(name, *, ours):
    return 200, json.dumps({"name": name, "ours": ours}).encode()


def test_the_owner_is_heard_and_a_silent_worker_is_passed_over():
    assert (
        of_the_owner({0: (0, b""), 1: body("other", ours=False), 2: body("owner", ours=True)})["name"]
        == "owner"
    )


def test_where_none_owns_the_key_any_can_name_who_does():
    assert of_the_owner({0: body("one", ours=False), 1: body("two", ours=False)})["name"] == "one"


def test_workers_that_are_all_silent_are_an_error():
    with pytest.raises(Unavailable):
        of_the_owner({0: (0, b""), 1: (500, b"Internal Server Error")})


def test_quarantined_keys_of_all_workers_come_together_the_oldest_first_and_bounded():
    def page(*since):
        return json.dumps({"keys": [{"key": f"k{n}", "since": n} for n in since], "total": 7}).encode()

    merged = merged_quarantine({0: (200, page(1, 9)), 1: (500, b"no"), 2: (200, page(4, 2))}, 3)
    assert [each["key"] for each in merged["keys"]] == ["k9", "k4", "k2"]
    assert merged["total"] == 14


def test_what_workers_have_changed_is_summed_and_a_bad_query_stays_bad():
    def done(number):
        return 200, json.dumps({"done": number, "left": 1, "paused": 0}).encode()

    assert summed({0: done(2), 1: done(3), 2: (0, b"")}) == {"done": 5, "left": 2, "paused": 0}
    assert summed({0: (400, b"Bad Request"), 1: done(3)}) is None
    with pytest.raises(Unavailable):
        summed({0: (0, b"")})


# --- the configuration ---


def outcome(said, *, taken=False, restart=()):
    return 200, json.dumps({"taken": taken, "said": said, "restart": list(restart)}).encode()


def test_the_parents_own_settings_and_the_sections_of_a_worker_make_a_page():
    worker = {"settings": {"state": "/learned.0", "sources.a.budget": "7/s", "namespaces.b.key": "b"}}
    own = {"settings": {"state": "/learned", "sources.a.budget": "5/s", "sources.gone.budget": "1/s"}}
    merged = with_own_top({0: (0, b""), 1: (200, json.dumps(worker).encode())}, own)
    assert merged == {"settings": {"state": "/learned", "sources.a.budget": "7/s", "namespaces.b.key": "b"}}
    with pytest.raises(Unavailable):
        with_own_top({0: (0, b"")}, own)


def test_workers_with_the_same_outcome_share_a_line():
    found = merged_outcomes({0: outcome("no change", taken=True), 1: outcome("no change", taken=True)})
    assert found == {"taken": True, "said": "worker 0, 1: no change", "restart": []}


def test_one_worker_that_refuses_or_is_silent_is_seen_in_the_outcome_of_all():
    good, bad = outcome("no change", taken=True), outcome("cache: needs a restart", restart=["cache"])
    refused = merged_outcomes({0: good, 1: bad})
    assert (refused["taken"], refused["restart"]) == (False, ["cache"])
    silent = merged_outcomes({0: good, 1: (0, b""), 2: bad})
    assert silent["taken"] is None
    assert "worker 1: does not answer" in silent["said"]
