"""A reader of stdout that goes away: pages of every size end quietly, and other broken pipes stay errors."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from cacheupdater.cli import reader

_BROKEN = 141  # as a shell shows the end of any other command by SIGPIPE
_CONFIG = """\
version: 1
listen: ["memory://shop"]
cache: {url: "redis://127.0.0.1:1/0"}
sources: {main: {url: "postgresql+asyncpg://u@127.0.0.1:1/x", budget: 500/s}}
namespaces: {product: {key: "product:{id:int}", load: {source: main, table: products}}}
"""
_FAILING = """\
import sys
from cacheupdater.cli import reader
def command():
    print("a page")
    raise BrokenPipeError("a connection")
sys.exit(reader.kept(command))
"""


def unread(*args, options=()):
    """How Python ends whose stdout nobody reads from the beginning, and what it says."""
    behind, before = os.pipe()
    os.close(behind)
    try:
        command = [sys.executable, *options, *args]
        done = subprocess.run(command, stdout=before, stderr=subprocess.PIPE, timeout=60, check=False)
    finally:
        os.close(before)
    return done.returncode, done.stderr.decode()


@pytest.fixture
def file(tmp_path):
    found = tmp_path / "shop.yaml"
    found.write_text(_CONFIG)
    return found


@pytest.mark.parametrize(
    "options", [(), pytest.param(("-u",), marks=pytest.mark.prove)], ids=["buffered", "unbuffered"]
)
@pytest.mark.parametrize("words", ["schema", "check -c {}", "explain -c {} product:7"])
def test_a_page_that_nobody_reads_ends_quietly(words, options, file):
    assert unread("-m", "cacheupdater", *words.format(file).split(), options=options) == (_BROKEN, "")


@pytest.mark.parametrize("words", [("--version",), ("demo", "--help")], ids=" ".join)
def test_help_that_nobody_reads_ends_quietly(words):
    code, said = unread("-m", "cacheupdater", *words)
    assert (code in {0, _BROKEN}, said) == (True, "")  # argparse minds no reader either


def test_a_page_of_which_a_reader_takes_one_line_ends_quietly():
    command = f"{sys.executable} -m cacheupdater schema | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=60, check=True)
    assert (done.stdout, done.stderr) == ("{\n", "")


def test_a_broken_connection_is_an_error_while_somebody_reads():
    command = [sys.executable, "-c", _FAILING]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr.endswith("BrokenPipeError: a connection\n")
    assert done.stdout == "a page\n"


def test_a_process_without_stdout_has_no_reader_to_lose(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    assert reader.kept(lambda: 7) == 7
