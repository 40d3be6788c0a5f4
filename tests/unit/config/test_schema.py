"""The committed JSON schema is made from the models. It accepts every file that the loader accepts, and refuses mistakes that
an editor should show."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import pytest
from ruamel.yaml import YAML

from cacheupdater.cli import main
from cacheupdater.config.schema import schema

ROOT = Path(__file__).parents[3]
COMMITTED = ROOT / "docs/reference/config.schema.json"
FILES = sorted([*(ROOT / "examples").rglob("cacheupdater.yaml")])
# whole documents of the pages; a fragment shows one section
PAGES = [
    text
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    for text in re.findall(r"```yaml\n(.*?)```", page.read_text(), re.DOTALL)
    if text.startswith("version: 1") and "\nnamespaces:" in text
]

GOOD = """\
version: 1
listen: ["tcp://127.0.0.1:7171", "unix:///tmp/hints.sock", "${MORE}"]
queue: {url: "memory://", partitions: 2}
cache: {url: "rediss+sentinel://a:26379,b:26379/shop/0"}
admin: {listen: "[::1]:9464"}
log_keys: off
sources:
  main: {url: "postgresql+asyncpg://db/shop", budget: 500/s, pool_size: 5, statement_timeout: 900ms, least_gain: 0.05}
  api: {db_time: 1.5s/s, freshness_target: 99%, burst: 1m30s}
defaults: {ttl: 5m, fail_safe: 30m, max_backlog: "5000"}
namespaces:
  product:
    key: "product:{id:int}"
    load: {source: main, sql: "SELECT id FROM products WHERE id IN :id", rows: one}
    ttl: {base: 1h, jitter: 10%}
    value: {encoding: json, columns: [name]}
    refresh: {policy: price, worth: 10, max_age: 30s}
    missing: {ttl: 0s}
    fail_safe: {extend_to: 1h}
    quota: {rate: 50/s, burst: 100}
  banner: {key: "banner:{slot}", load: {source: api, python: "shop.loaders:banners"}, refresh: {every: "${EVERY:-2s}"}}
"""
WRONG = [
    ("version: 1", "version: 2", "version"),
    ("version: 1\n", "", "required"),
    ("cache:", "cash:", "cash"),
    ("memory://", "amqp://broker", "queue"),
    ("partitions: 2", "partitions: 0", "queue"),
    ("partitions: 2", "partitions: 1025", "queue"),
    ("[::1]:9464", "9464", "admin"),
    ("rediss+sentinel://", "http://", "cache"),
    ("postgresql+asyncpg", "postgresql", "sources"),
    ("500/s", "500", "sources"),
    ("900ms", "900", "sources"),
    ("0.05", "-1", "sources"),
    ("1.5s/s", "1.5", "sources"),
    ("99%", "0.99", "sources"),
    ("5m", "5 minutes", "defaults"),
    ('"5000"', "many", "defaults"),
    ("log_keys: off", "log_keys: never", "log_keys"),
    ("  product:\n", "  7up:\n", "namespaces"),
    ('key: "product:{id:int}"\n', "\n", "namespaces"),
    ("rows: one", "rows: two", "namespaces"),
    ("encoding: json", "encoding: yaml", "namespaces"),
    ("columns: [name]", "columns: []", "namespaces"),
    ("worth: 10,", "worth: 0,", "namespaces"),
    ("worth: 10,", "worht: 10,", "namespaces"),
    ("loaders:banners", "loaders.banners", "namespaces"),
    ("jitter: 10%", "jitter: 10", "namespaces"),
    ("rate: 50/s", "rate: 50", "namespaces"),
    ("30m", "30", "defaults"),
    ("extend_to: 1h", "extend_to: 1", "namespaces"),
    ("extend_to: 1h", "extended: 1h", "namespaces"),
]


def refusals(text):
    found = jsonschema.Draft7Validator(json.loads(COMMITTED.read_text())).iter_errors(
        YAML(typ="safe").load(text)
    )
    return [f"{'.'.join(map(str, each.absolute_path))} {each.validator} {each.message}" for each in found]


def test_the_committed_schema_is_what_the_models_say(capsys):
    assert main(["schema"]) == 0
    assert capsys.readouterr().out == COMMITTED.read_text(), (
        "run: cacheupdater schema > docs/reference/config.schema.json"
    )


def test_the_schema_is_one_and_every_reference_leads_somewhere():
    jsonschema.Draft7Validator.check_schema(schema())
    text = json.dumps(schema())
    assert set(re.findall(r"#/\$defs/(\w+)", text)) == schema()["$defs"].keys()
    assert "(?" not in text, "RE2 and Helm know no lookaround"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.parent.name)
def test_every_example_validates(file):
    assert refusals(file.read_text()) == []


def test_documents_on_the_pages_validate():
    assert PAGES, "README shows a whole document"
    assert [refusals(text) for text in PAGES] == [[] for _ in PAGES]


def test_each_form_of_a_value_is_taken():
    assert refusals(GOOD) == []


@pytest.mark.parametrize(("old", "new", "where"), WRONG, ids=lambda text: text.strip()[:30])
def test_what_an_editor_can_see_is_refused(old, new, where):
    assert GOOD.count(old) >= 1
    found = refusals(GOOD.replace(old, new, 1))
    assert any(where in each for each in found), found


def test_each_field_of_the_models_is_in_it():
    parts = schema()["$defs"]
    assert {"url", "partitions"} == parts["QueueSection"]["properties"].keys()
    assert {"description", "examples", "pattern", "type"} == parts["SourceSection"]["properties"][
        "budget"
    ].keys()
