"""The page for the person who is on call: its answers are those of a running updater, and it names every trouble."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from live.explained import command
from live.updater_process import eventually
from stories.reasons import CASES, reasons

from cacheupdater.core.events import EVENTS
from cacheupdater_client import Redis

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "how-to" / "on-call.md"
REFERENCE = ROOT / "docs" / "reference" / "cli.md"
ALERTS = ROOT / "tests" / "chart" / "golden" / "on-call.yaml"
WITHIN_S = 60.0  # two cold starts on a busy machine

TABLES = (
    "CREATE TABLE products (id bigint PRIMARY KEY, name text, price bigint)",
    "INSERT INTO products VALUES (7, 'teapot', 900)",
    "CREATE TABLE offers (id bigint PRIMARY KEY, price bigint, pieces bigint)",
    "INSERT INTO offers SELECT n, 900, CASE n WHEN 3 THEN 0 ELSE 3 END FROM generate_series(1, 10) n",
)
PRODUCT = "SELECT id, name, price FROM products WHERE id IN :id"
OFFER = "SELECT id, price / pieces AS each FROM offers WHERE id IN :id"


def settings(redis_url, source):
    load = {"source": "shop"}
    return {
        "version": 1,
        "cache": {"url": redis_url},
        "sources": {"shop": {"url": source, "budget": "500/s"}},
        "namespaces": {
            "product": {"key": "product:{id:int}", "load": {**load, "sql": PRODUCT}},
            "offer": {"key": "offer:{id:int}", "load": {**load, "sql": OFFER}},
        },
    }


def shown():
    """The lines that the page shows after each command."""
    blocks = re.findall(r"```console\n\$ (.*)\n([\s\S]*?)```", PAGE.read_text())
    return {asked: [line for line in answer.splitlines() if line.strip(" …")] for asked, answer in blocks}


def masked(text):
    """Without numbers, and without the name of the person and the machine."""
    return re.sub(r"\d+(?:[.,]\d+)*", "#", re.sub(r"[\w.-]+@[\w.-]+", "somebody", text))


def fits(line, answer):
    """Whether a line of the page stands in the answer. `…` stands for what was left out."""
    pattern = ".*".join(map(re.escape, masked(line).split("…")))
    return any(re.fullmatch(pattern, masked(each)) for each in answer.splitlines())


class Shift:
    """Types the page's commands at one updater."""

    def __init__(self, updater):
        self._updater = updater
        self.typed = []

    def answer(self, asked):
        program, *arguments = shlex.split(asked)
        if program == "curl":
            assert arguments[-1].endswith("/readyz")
            return self._updater.page("/readyz")[1]
        return "".join(command(self._updater, *arguments)[1:])

    def missing(self, asked):
        """The lines of the page that the answer does not have, and the answer."""
        answer = self.answer(asked)
        lines = [line for line in shown()[asked] if not fits(line, answer)]
        return [*lines, answer] if lines else []

    def type(self, asked):
        """Once: the command changes something."""
        self.typed.append(asked)
        assert self.missing(asked) == []

    def ask(self, asked):
        """Until the updater has met what the page tells of."""
        self.typed.append(asked)
        eventually(lambda: Told(self.missing(asked)), WITHIN_S, every=0.2)


class Told(list):
    """True once nothing is missing; else shown where the test fails."""

    def __bool__(self):
        return not len(self)


@pytest.mark.untimed
@pytest.mark.live
@pytest.mark.timeout(240)
@pytest.mark.usefixtures("patient")
def test_the_answers_on_the_page_are_those_of_a_running_updater(redis_url, updaters, postgres_server, plain):
    postgres_server.execute(*TABLES)
    updater = updaters.start(settings(redis_url, postgres_server.url()))
    shift = Shift(updater)
    with Redis.from_url(redis_url, emit=updater.emit) as client:
        client.mget("product:7")
        eventually(lambda: plain.get("product:7"))
        postgres_server.execute("UPDATE products SET price = 750 WHERE id = 7")
        command(updater, "pause", "product")
        shift.ask("cacheupdater explain product:7 --connect")
        shift.type("cacheupdater resume product")
        shift.type("cacheupdater invalidate product:7")
        assert plain.get("product:7") is None
        eventually(lambda: not updater.metric("paused", namespace="product"))

        postgres_server.stop()
        client.get("product:7")
        shift.ask("curl -s 127.0.0.1:9464/readyz")
        postgres_server.start()

        client.mget([f"offer:{number}" for number in range(1, 11)])
        shift.ask("cacheupdater quarantine list")
        postgres_server.execute("UPDATE offers SET pieces = 3 WHERE id = 3")
        shift.type("cacheupdater quarantine retry offer:3")
        eventually(lambda: plain.get("offer:3"))
    assert sorted(shift.typed) == sorted(shown())


def test_a_line_that_no_updater_says_is_found():
    answer = "paused for 1.9 s, by root@vm: nothing is loaded\nretried 1 of 1"
    assert fits("paused for 20 s, by ops@web-1: …", answer)
    assert fits("retried 2 of 2", answer)
    assert not fits("paused for 20 s, by ops@web-1", answer)
    assert not fits("retried", answer)


def named(text):
    """The troubles to which the page has an answer."""
    return re.findall(r"^\| `([a-z_]+)` \|", text[text.index("## Troubles by name") :], re.MULTILINE)


def test_the_page_has_an_answer_to_each_trouble_and_to_no_other():
    assert sorted(named(PAGE.read_text())) == sorted(EVENTS)


def rows(page, head):
    """What the first cells below this head of a table say: pieces of sentences, in which `…` stands for what differs."""
    table = page.read_text().partition(f"\n{head}\n")[2].partition("\n\n")[0]
    cells = [line.split("|")[1] for line in table.splitlines()[1:]]
    return [piece.strip() for cell in cells for piece in re.sub(r"\*\w+\*", "…", cell).split(";")]


def fitting(pieces, sentence):
    """Those of the pieces that stand in the sentence."""

    def fits(piece):
        parts = [re.escape(part.strip()) for part in piece.split("…")]
        return re.search(".*".join(parts), sentence, re.IGNORECASE)

    return list(filter(fits, pieces))


ON_THE_PAGE = rows(PAGE, "| `because` says | go on |")
IN_THE_REFERENCE = rows(REFERENCE, "| says | when |")


def said():
    """Each sentence of `because`."""
    return sorted({sentence for facts, _ in CASES for sentence in reasons(**facts)})


def test_each_reason_has_a_row_in_the_reference():
    assert [each for each in said() if not fitting(IN_THE_REFERENCE, each)] == []


@pytest.mark.parametrize("pieces", [ON_THE_PAGE, IN_THE_REFERENCE], ids=["page", "reference"])
def test_each_row_is_about_a_reason_that_is_said(pieces):
    assert set(pieces) == {piece for sentence in said() for piece in fitting(pieces, sentence)}


def test_each_reason_that_the_page_shows_has_a_row_there():
    shown_there = [line for lines in shown().values() for line in lines]
    told = [line.strip() for line in shown_there[shown_there.index("because") + 1 :] if line.startswith("  ")]
    assert len(told) > 1
    assert [each for each in told if not fitting(ON_THE_PAGE, each)] == []


@pytest.mark.parametrize(
    "sentence",
    ["No updater has answered", "No updater was asked", "No updater has partition", "accepts no hints now"],
)
def test_a_reason_that_no_updater_is_there_leads_to_what_to_do_then(sentence):
    [row] = [line for line in PAGE.read_text().splitlines() if line.startswith("| ") and sentence in line]
    assert ("(#no-updater-is-ready)" in row) == (sentence != "No updater was asked")


def links(page):
    return re.findall(r"\]\(([^)#]*)(?:#([^)]*))?\)", page.read_text())


def anchors(page):
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", each).lower().replace(" ", "-") for each in headings}


def test_each_link_of_the_page_leads_to_a_section_that_exists():
    for path, section in links(PAGE):
        target = (PAGE.parent / path) if path else PAGE
        assert target.exists(), path
        assert not section or section in anchors(target), (path, section)


def test_a_person_on_call_finds_the_page_where_they_look_first():
    for page in ("README.md", "docs/README.md", "docs/how-to/helm.md", "docs/how-to/feeds.md"):
        assert "on-call.md" in (ROOT / page).read_text(), page


def test_the_alerts_fit_updaters_outside_kubernetes_once_the_page_was_followed():
    page = PAGE.read_text().partition("### Without the chart")[2]
    [matchers] = re.findall(r"Remove the matchers `([^`]+)`", page)
    labels = re.findall(r"`(\w+)` for `(\w+)`", page)
    assert labels == [("namespace", "exported_namespace"), ("instance", "pod")]
    rules = re.findall(r"^ +(?:expr|summary|description): (.*)$", ALERTS.read_text(), re.MULTILINE)
    assert len(rules) > 20
    for rule in rules:
        text = re.sub(f"{re.escape(matchers)},?", "", rule)
        for ours, theirs in labels:
            text = re.sub(rf"\b{theirs}\b(?=\)| }}}})", ours, text)
        assert not re.search(r"\bpod\b|exported|\bshop\b(?!-)", text.replace("No pod of", "")), text
        assert "{," not in text
