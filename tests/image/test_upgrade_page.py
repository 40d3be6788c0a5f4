"""The page about upgrades names the numbers that the code has, and the formats behave as its table says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args, get_type_hints

import msgspec
import pytest

from cacheupdater.config.models import TopSection
from cacheupdater.price import memory
from cacheupdater.recording import recording
from cacheupdater_client.protocol import wire

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/how-to/upgrade.md").read_text()
PACK = msgspec.msgpack.Encoder().encode


def numbers_of_the_page():
    rows = re.findall(r"^\| \[?([a-z ]+)\]?(?:\(\S+\))? \| (\d+) \|", PAGE, re.MULTILINE)
    return {name: int(number) for name, number in rows}


def test_the_page_names_the_number_of_every_format():
    (configuration,) = get_args(get_type_hints(TopSection)["version"])
    assert numbers_of_the_page() == {
        "pack": wire.VERSION,
        "hello": wire.VERSION,
        "configuration": configuration,
        "learned state": memory.VERSION,
        "recording": recording.VERSION,
    }


def test_both_ends_ignore_an_appended_element():
    """So two packages with equal numbers understand each other, whichever is newer."""
    pack = PACK([wire.VERSION, wire.TOUCH, 1_800_000_000_000, [b"product:7"], [], {"later": True}])
    assert wire.decode_pack(pack).keys == [b"product:7"]
    hello = PACK([wire.VERSION, 12, [b"product:"], "later"])
    assert wire.decode_hello(hello) == wire.Hello(12, [b"product:"])


@pytest.mark.parametrize("read", [wire.decode_pack, wire.decode_hello])
def test_another_number_is_refused_by_its_name(read):
    with pytest.raises(wire.Malformed, match="unknown_version"):
        read(PACK([wire.VERSION + 1, 12, [b"product:"]]))


def test_the_page_verifies_a_release_by_the_names_that_the_release_uses():
    release = (ROOT / ".github/workflows/release.yml").read_text()
    for said in ("https://token.actions.githubusercontent.com", "ghcr.io/cacheupdater/charts"):
        assert said in PAGE
        assert said in release
    assert "/.github/workflows/release.yml@refs/tags/v" in PAGE
