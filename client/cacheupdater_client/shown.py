"""How logs, errors and `stats` name a target of hints: without anything that may be a user or a password.

Hosts and a path are shown where they can be nothing else, and so are options that are files and switches. `***` stands for
all the rest. A kafka:// URL names its user. No target has a place for a password, but somebody may have written one into it.
"""

from __future__ import annotations

import re

_HOST = r"(?:\[[0-9A-Fa-f:.%]+\]|[\w.-]+)(?::[0-9]{1,5})?"
_WHERE = re.compile(rf"[a-z][a-z0-9+.-]{{0,20}}://(?:{_HOST}(?:,{_HOST})*)?(?:/[\w./%-]*)?")
_WORD = re.compile(r"(?:unix:)?[\w./-]{0,100}(?::[0-9]{1,5})?")  # no URL at all: mistyped, or unix:/path
_OPTION = re.compile(
    r"(?:ca|cert|key|tls|sasl|password_file|token_file|stream|partitions|length|evicting)=[\w./:%-]*"
)


def shown(url: str) -> str:
    """The URL as it may be printed."""
    where, found, options = url.partition("?")
    if "@" in url or not (_WHERE if "://" in where else _WORD).fullmatch(where):
        scheme = where.partition("://")[0]
        return f"{scheme}://***" if "://" in where and re.fullmatch(r"[a-z0-9+.-]{1,20}", scheme) else "***"
    return where + (found and "?" + "&".join(map(_option, options.split("&"))))


def _option(said: str) -> str:
    if _OPTION.fullmatch(said):
        return said
    return "username=***" if said.startswith("username=") else "***"
