"""The configuration changes while a real updater runs: by SIGHUP, by a new file, by a link that leads to another file."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time

import pytest
import redis
from live.explained import because
from live.shop import NAMESPACES, TABLES
from live.updater_process import config, eventually

from cacheupdater.cli import main
from cacheupdater_client import Redis

pytestmark = pytest.mark.untimed

PRODUCT = {"name": "product 1", "price": "100.00"}
OTHER = {
    "key": "named:{id:int}",
    "load": {"source": "main", "sql": "SELECT id, name FROM products WHERE id IN :id"},
}
PRICED = OTHER | {"load": {"source": "main", "sql": "SELECT id, price AS name FROM products WHERE id IN :id"}}


@pytest.fixture
def shop(database):
    database.execute(";".join(TABLES))
    return database


@pytest.fixture
def settings(redis_url, pg_url, shop):
    sources = {"main": {"url": pg_url, "budget": "5000/s"}}
    product = json.loads(json.dumps(NAMESPACES["product"]))
    return config(redis_url, sources, {"product": product})


@pytest.fixture
def updater(updaters, settings):
    return updaters.start(settings)


@pytest.fixture
def application(updater, redis_url):
    with Redis.from_url(redis_url, emit=updater.emit) as application:
        yield application


class Hand:
    """The operator's hand: changes the settings of a file, which is replaced in one step."""

    def __init__(self, updater):
        self._updater = updater
        self.said = json.loads(updater.file.read_text())

    def write(self):
        new = self._updater.file.with_suffix(".new")
        new.write_text(json.dumps(self.said))
        new.replace(self._updater.file)

    def hang_up(self):
        os.kill(self._updater.pid, signal.SIGHUP)


@pytest.fixture
def hand(updater):
    return Hand(updater)


def refusals(updater):
    """The warnings of `/readyz` about a file that was refused."""
    said = json.loads(updater.page("/readyz")[1])["warnings"]
    return [each for each in said if each["event"] == "reload_refused"]


def read_until(application, key, wanted):
    """Reads a key, as an application does that goes on, until its value has these fields."""
    eventually(lambda: json.loads(application.get(key) or "null") == wanted)


def test_a_namespace_comes_changes_and_goes_by_a_new_file(application, updater, hand, plain):
    read_until(application, "product:1", PRODUCT)

    hand.said["namespaces"]["named"] = OTHER
    hand.write()
    read_until(application, "named:1", {"id": 1, "name": "product 1"})

    hand.said["namespaces"]["named"] = PRICED
    hand.write()
    eventually(lambda: "changed: namespaces.named" in updater.log)
    plain.delete("named:1")
    read_until(application, "named:1", {"id": 1, "name": "100.00"})

    del hand.said["namespaces"]["named"]
    hand.write()
    eventually(lambda: "removed: namespaces.named" in updater.log)
    plain.delete("named:2", "product:2")
    application.get("named:2")
    read_until(application, "product:2", PRODUCT | {"name": "product 2", "price": "200.00"})
    assert not plain.exists("named:2")
    assert 'namespace="named"' not in updater.page("/metrics")[1]


def test_explain_says_that_the_updater_has_not_taken_over_the_file(updater, hand, capsys, tmp_path):
    hand.said["namespaces"]["named"] = OTHER
    other = tmp_path / "other.yaml"
    other.write_text(json.dumps(hand.said))
    assert main(["explain", "named:1", "-c", str(other)]) == 0
    said = capsys.readouterr().out
    assert "another configuration than this file" in said
    assert "to namespace named, in the updater to no namespace, so the updater drops its hints" in said

    hand.write()
    eventually(lambda: "added: namespaces.named" in updater.log)
    assert main(["explain", "named:1", "-c", str(other)]) == 0
    assert "another configuration" not in capsys.readouterr().out


def test_a_configmap_that_is_swapped_by_its_link_is_taken_over(updater, hand, application):
    folder = updater.file.parent
    for name in ("first", "second"):
        (folder / name).mkdir()
        (folder / name / "file.yaml").write_text(json.dumps(hand.said))
        hand.said["namespaces"]["named"] = OTHER
    (folder / "..data").symlink_to("first")
    updater.file.unlink()
    updater.file.symlink_to("..data/file.yaml")
    eventually(lambda: "no change" in updater.log)

    (folder / "..next").symlink_to("second")
    (folder / "..next").replace(folder / "..data")

    read_until(application, "named:1", {"id": 1, "name": "product 1"})


def test_a_file_with_a_mistake_changes_nothing_and_says_so(updater, hand, application, plain):
    hand.said["namespaces"]["named"] = OTHER
    hand.said["namespaces"]["product"]["ttl"] = "soon"
    hand.write()
    eventually(lambda: updater.metric("config_last_reload_successful") == 0)

    assert "namespaces.product.ttl" in updater.log
    (standing,) = refusals(updater)
    assert "namespaces.product.ttl" in standing["text"]
    assert updater.log.count("the configuration is not taken over") == 1
    read_until(application, "product:1", PRODUCT)
    application.get("named:1")
    assert not plain.exists("named:1")

    hand.said["namespaces"]["product"]["ttl"] = "30s"
    hand.write()
    eventually(lambda: updater.metric("config_last_reload_successful") == 1)
    assert refusals(updater) == []
    read_until(application, "named:1", {"id": 1, "name": "product 1"})


def test_what_needs_a_restart_is_refused_by_name_and_the_rest_is_not_taken_over(updater, hand, application):
    hand.said["namespaces"]["named"] = OTHER
    hand.said["log_keys"] = "full"
    hand.write()
    hand.hang_up()
    eventually(lambda: "log_keys: needs a restart" in updater.log)
    assert updater.metric("config_last_reload_successful") == 0
    assert "added: namespaces.named" not in updater.log


def test_an_operator_sees_a_change_before_it_is_taken_and_has_it_taken(updater, hand, capsys, tmp_path):
    """The other file stands elsewhere first. Then it is the updater's own, and is read at once."""
    hand.said["namespaces"]["named"] = OTHER
    hand.said["sources"]["main"]["budget"] = "700/s"
    other = tmp_path / "other.yaml"
    other.write_text(json.dumps(hand.said))

    assert main(["reload", "--dry-run", "-c", str(other)]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[:2] == ["added    namespaces.named", "changed  sources.main.budget: 5000/s -> 700/s"]
    assert "namespaces.named" not in updater.log

    hand.write()
    assert main(["reload", "-c", str(other)]) == 0
    took = "added: namespaces.named; changed: sources.main"
    # on a slow machine the updater may have looked at the file by itself before
    assert capsys.readouterr().out in {f"{took}\n", "no change\n"}
    assert took in updater.log
    assert main(["reload", "--dry-run", "-c", str(other)]) == 0
    assert capsys.readouterr().out == "no change\n"

    hand.said["log_keys"] = "full"
    hand.write()
    assert main(["reload", "-c", str(updater.file)]) == 3
    assert "log_keys: needs a restart" in capsys.readouterr().err
    assert main(["reload", "--dry-run", "-c", str(updater.file)]) == 3
    assert "restart  log_keys: hash -> full" in capsys.readouterr().out


def test_each_worker_tells_of_a_refused_file_until_one_is_accepted(updaters, settings, tmp_path):
    queue = {"url": f"sqlite:///{tmp_path}/hints.db?partitions=4"}
    parent = updaters.start(settings | {"queue": queue}, arguments=("--workers", "2"))
    hand = Hand(parent)
    hand.said["namespaces"]["product"]["ttl"] = "soon"
    hand.write()
    eventually(lambda: {each["worker"] for each in refusals(parent)} == {0, 1})

    hand.said["namespaces"]["product"]["ttl"] = "30s"
    hand.write()
    eventually(lambda: refusals(parent) == [])


FORM = "its values in Redis that cacheupdater wrote are replaced one by one in the new form"
CHANGED = "form_changed product: "


def test_an_operator_and_everybody_else_hear_that_values_get_another_form(
    application, updater, hand, plain, capsys, tmp_path
):
    """Otherwise the running application fails at the next refresh, and nothing says why."""
    read_until(application, "product:1", PRODUCT)
    hand.said["namespaces"]["product"]["value"]["encoding"] = "hash"
    other = tmp_path / "other.yaml"
    other.write_text(json.dumps(hand.said))
    assert main(["reload", "--dry-run", "-c", str(other)]) == 0
    assert f"warning  namespaces.product: {FORM}" in capsys.readouterr().out
    assert not any(FORM in each for each in updater.messages)

    hand.write()
    eventually(lambda: any(FORM in each for each in updater.messages))
    with contextlib.suppress(redis.ResponseError):  # the application reads a string, until it is replaced
        application.get("product:1")
    eventually(lambda: plain.type("product:1") == b"hash")
    (standing,) = [each for each in updater.troubles if each.startswith(CHANGED)]
    assert "they read as json, where hash would be written" in standing
    assert ": form_changed: " in because(updater, "product:7")
    eventually(lambda: updater.metric("troubles", event="form_changed") == 1)


def test_a_restart_with_another_form_says_what_becomes_of_values_that_the_updater_wrote(
    application, updater, hand, plain
):
    read_until(application, "product:1", PRODUCT)
    updater.terminate()
    updater.wait()
    hand.said["namespaces"]["product"]["value"]["encoding"] = "msgpack"
    hand.said["namespaces"]["product"]["ttl"] = "2s"  # of the new values
    hand.write()
    updater.start()
    application.get("product:1")
    eventually(lambda: not (plain.get("product:1") or b"").startswith(b"{"))
    (said,) = eventually(lambda: [each for each in updater.messages if each.startswith(CHANGED)])
    assert "they read as json, where msgpack would be written" in said
    eventually(lambda: f"{CHANGED}over after" in updater.log)


@pytest.mark.prove
def test_the_budget_holds_over_reloads(updater, hand, application, shop):
    rate = 40
    hand.said["sources"]["main"]["budget"] = f"{rate}/s"
    hand.write()
    eventually(lambda: "may spend 40 a second" in updater.log)
    spent, began = updater.metric("rows_total"), time.monotonic()
    for number in range(6):
        application.mget([f"product:{number * 1000 + n}" for n in range(200)])
        hand.said["namespaces"][f"other{number}"] = OTHER | {"key": f"other{number}:{{id:int}}"}
        hand.write()
        eventually(lambda number=number: f"added: namespaces.other{number}" in updater.log)
    rows, took = updater.metric("rows_total") - spent, time.monotonic() - began
    assert rows <= rate * took + rate
    assert rows >= 0.4 * rate * took
