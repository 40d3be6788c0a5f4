"""Only the driver gets a password of the configuration."""

from __future__ import annotations

import pytest

from cacheupdater import masking
from cacheupdater.config.secrets import Url

_CANARY = "c4n4ry"


@pytest.mark.parametrize(
    "url",
    [
        f"redis://:{_CANARY}@host:6379/0",
        f"postgresql+asyncpg://user:{_CANARY}@host/db?ssl=true",
        f"postgresql+asyncpg://user:{_CANARY}/@:{_CANARY}@host/db",
        f"redis://host/0?password={_CANARY}&db=1",
        f"postgresql+asyncpg://host/db?user=u&PASSWORD={_CANARY}",
    ],
)
def test_url_shows_no_password(url):
    hidden = Url(url)
    assert _CANARY not in f"{hidden} {hidden!r} {masking.text(f'error near {url!r}, retry')}"
    assert "host" in str(hidden) or "/@" in url  # where the password ends is not certain then
    assert hidden.reveal() == url


@pytest.mark.parametrize(
    "text", ["redis://host:6379/0", "unix:///run/x.sock", "at 12:30 a@b wrote", "tcp://[::1]:7171"]
)
def test_a_text_without_passwords_is_left_alone(text):
    assert masking.text(text) == text


def test_url_equals_by_what_it_hides():
    assert Url("redis://:a@h") == Url("redis://:a@h") != Url("redis://:b@h")
    assert len({Url("redis://:a@h"), Url("redis://:a@h")}) == 1
