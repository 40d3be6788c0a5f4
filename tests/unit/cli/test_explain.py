"""`explain` without an updater's answer: whether one was asked, and why there is no answer."""

from __future__ import annotations

import json

import pytest

from cacheupdater.cli import main

FILE = """\
version: 1
cache: {url: "redis://127.0.0.1:1/0"}
sources: {main: {budget: 500/s}}
namespaces: {banner: {key: "banner:{slot}", load: {source: main, python: "json:loads"}}}
"""


@pytest.mark.parametrize(
    ("admin", "why", "reason"),
    [
        ("", "admin is not configured", "No updater was asked, for the configuration has no address of one"),
        (
            'admin: {listen: "127.0.0.1:0"}\n',
            "has port 0",
            "No updater was asked, for the configuration has no",
        ),
        ('admin: {listen: "127.0.0.1:1"}\n', "is it running?", "No updater has answered about this key, so"),
    ],
    ids=["unconfigured", "any_port", "away"],
)
def test_a_silent_updater_is_told_from_one_that_was_not_asked(tmp_path, capsys, admin, why, reason):
    file = tmp_path / "shop.yaml"
    file.write_text(FILE + admin)
    assert main(["explain", "banner:home", "-o", "json", "-c", str(file)]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["updater"] is None
    assert why in said["silence"]
    assert said["because"][0].startswith(reason)
