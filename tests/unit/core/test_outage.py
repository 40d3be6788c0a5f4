"""When the loads of a source count as failing."""

from __future__ import annotations

from cacheupdater.core.outage import Outage


def test_one_failure_is_no_outage_and_two_without_a_success_between_them_are():
    outage = Outage()
    outage.failed("a", own=False)
    outage.loaded("b", 1.0)
    outage.failed("a", own=False)
    assert not outage.lasts
    outage.failed("b", own=False)
    assert outage.lasts
    assert outage.concerns("a")
    assert outage.concerns("never loaded")


def test_a_success_ends_the_outage_for_all_namespaces_of_the_source():
    outage = Outage()
    for _ in range(5):
        outage.failed("a", own=False)
    outage.loaded("b", 1.0)
    assert not outage.concerns("a")
    assert not outage.lasts


def test_loads_that_are_at_fault_themselves_concern_their_namespace_alone():
    outage = Outage()
    for _ in range(2):
        outage.failed("a", own=True)
        outage.loaded("b", 1.0)
    assert outage.concerns("a")
    assert not outage.concerns("b")
    outage.loaded("a", 1.0)
    assert not outage.concerns("a")
    assert not outage.lasts


def test_each_beginning_is_counted_once():
    outage = Outage()
    for _ in range(5):
        outage.failed("a", own=False)
    assert outage.begun == 1
    for _ in range(5):
        outage.failed("a", own=True)
    assert outage.begun == 2
    outage.loaded("a", 1.0)
    for _ in range(2):
        outage.failed("a", own=False)
    assert outage.begun == 3


def test_a_namespace_has_loaded_since_a_time_if_a_load_has_succeeded_that_began_later():
    outage = Outage()
    assert not outage.has_loaded("a", 0.0)
    outage.loaded("a", 5.0)
    assert outage.has_loaded("a", 4.9)
    assert not outage.has_loaded("a", 5.0), "it was under way already"
    outage.loaded("a", 3.0)  # it ends last
    assert outage.has_loaded("a", 4.9)
    assert not outage.has_loaded("b", 0.0)
