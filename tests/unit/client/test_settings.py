"""Where hints go: the argument, the environment, the conventional socket, in this order."""

from __future__ import annotations

import pytest

from cacheupdater_client import settings


def target_of(emit):
    return settings.choice_of(emit).url


@pytest.fixture(autouse=True)
def clean(monkeypatch, tmp_path):
    monkeypatch.delenv("CACHEUPDATER_EMIT", raising=False)
    monkeypatch.delenv("CACHEUPDATER_DISABLED", raising=False)
    monkeypatch.setattr(settings, "CONVENTIONAL_SOCKET", tmp_path / "hints.sock")


def test_auto_is_the_conventional_socket_whether_an_updater_has_made_it_or_not(tmp_path):
    url = f"unix://{tmp_path}/hints.sock"
    assert settings.choice_of("auto") == (url, "the conventional socket", True)
    (tmp_path / "hints.sock").touch()
    assert settings.choice_of("auto") == (url, "the conventional socket", True)
    assert settings.choice_of(url) == (url, "emit", False)


def test_auto_is_the_environments_choice_before_the_socket(tmp_path, monkeypatch):
    (tmp_path / "hints.sock").touch()
    monkeypatch.setenv("CACHEUPDATER_EMIT", "tcp://h:1")
    assert target_of("auto") == "tcp://h:1"
    monkeypatch.setenv("CACHEUPDATER_EMIT", "none")
    assert target_of("auto") is None


def test_an_argument_is_stronger_than_the_environment(monkeypatch):
    monkeypatch.setenv("CACHEUPDATER_EMIT", "tcp://h:1")
    assert target_of("unix:///x") == "unix:///x"
    assert target_of("none") is None


@pytest.mark.parametrize(
    ("value", "disabled"), [("1", True), ("true", True), ("0", False), ("", False), ("no", False)]
)
def test_disabled_is_stronger_than_everything(monkeypatch, value, disabled):
    monkeypatch.setenv("CACHEUPDATER_DISABLED", value)
    assert target_of("unix:///x") == (None if disabled else "unix:///x")


def test_only_is_a_list_of_prefixes():
    assert settings.prefixes_of(["b:", b"a:"]) == (b"a:", b"b:")
    assert settings.prefixes_of(None) == ()


@pytest.mark.parametrize("only", ["product:", b"product:", [], ()])
def test_only_that_would_surprise_is_refused(only):
    with pytest.raises(ValueError, match="list of prefixes"):
        settings.prefixes_of(only)
