"""`cacheupdater topic create` before it meets a broker: usage, and configurations without a topic."""

from __future__ import annotations

import subprocess
import sys

import pytest
from suite.commands import on_a_queue

from cacheupdater.cli import main


@pytest.fixture
def create(tmp_path, capsys):
    run = on_a_queue(tmp_path, capsys)
    return lambda url, *options: run(url, "topic", "create", *options)


@pytest.mark.parametrize(
    "options",
    [
        ("--partitions", "0"),
        ("--partitions", "many"),
        ("--partitions", "1025"),
        ("--replication", "33"),
        ("--replication", "-1"),
        ("--retention", "6"),
        ("--retention", "59s"),
        ("--retention", "31d"),
    ],
)
def test_numbers_that_cannot_be_meant_are_bad_usage(create, options):
    code, out, err = create("kafka://127.0.0.1:1/hints", *options)
    assert (code, out) == (2, "")
    assert options[0] in err


def test_topic_alone_is_bad_usage(capsys):
    assert main(["topic"]) == 2
    assert "create" in main_help(capsys)


def main_help(capsys):
    capsys.readouterr()
    assert main(["topic", "--help"]) == 0
    return capsys.readouterr().out


def test_without_kafka_there_is_no_topic_to_make(create):
    code, out, err = create("memory://")
    assert (code, out) == (78, "")
    assert "queue.url is no kafka:// address" in err


def test_nobody_answers_ends_with_70(create):
    code, out, err = create("kafka://127.0.0.1:1/hints")
    assert (code, out) == (70, "")
    assert "nobody answers at 127.0.0.1:1" in err


def test_a_secret_that_is_not_there_ends_with_78_and_names_the_file(create, tmp_path):
    url = f"kafka://127.0.0.1:1/hints?sasl=SCRAM-SHA-512&username=shop&password_file={tmp_path}/none"
    code, _, err = create(url)
    assert code == 78
    assert f"{tmp_path}/none: No such file" in err


def test_aiokafka_missing_says_what_to_install(create, monkeypatch):
    for name in [each for each in sys.modules if each.startswith("cacheupdater.adapters.topic_kafka")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr("cacheupdater.adapters.topic_kafka", raising=False)
    for name in [each for each in sys.modules if each.partition(".")[0] == "aiokafka"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "aiokafka", None)
    code, _, err = create("kafka://127.0.0.1:1/hints")
    assert code == 78
    assert "pip install 'aiokafka[zstd]>=0.14,<0.15' 'zstandard>=0.23'" in err


def test_help_loads_nothing_heavy():
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "cacheupdater", "topic", "create", "--help"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    loaded = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()}
    assert not loaded.intersection({"aiokafka", "asyncio", "pydantic", "sqlalchemy", "redis"})
    assert "--retention" in done.stdout
