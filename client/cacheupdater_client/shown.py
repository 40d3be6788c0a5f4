"""How a target of hints is named in logs, errors and `stats`: without what may be a user or a password.

By structure: hosts and path where they look like nothing else, the options that are files and switches, and `***` for all
the rest. A kafka:// URL names its user; a password has no place in any target, and may have been written into one.
"""

from __future__ import annotations

import re

_HOST = r"(?:\[[0-9A-Fa-f:.%]+\]|[\w.-]+)(?::[0-9]{1,5})?"
_WHERE = re.compile(rf"[a-z][a-z0-9+.-]{{0,20}}://(?:{_HOST}(?:,{_HOST})*)?(?:/[\w./%-]*)?")
_WORD = re.compile(r"[\w./-]{0,100}(?::[0-9]{1,5})?")  # no URL at all: mistyped
_OPTION = re.compile(r"(?:ca|cert|key|tls|sasl|password_file|token_file)=[\w./:%-]*")


def shown(url: str) -> str:
    """As it may be printed."""
    where, found, options = url.partition("?")
    if "@" in url or not (_WHERE if "://" in where else _WORD).fullmatch(where):
        scheme = where.partition("://")[0]
        return f"{scheme}://***" if "://" in where and re.fullmatch(r"[a-z0-9+.-]{1,20}", scheme) else "***"
    return where + (found and "?" + "&".join(map(_option, options.split("&"))))


def _option(said: str) -> str:
    if _OPTION.fullmatch(said):
        return said
    return "username=***" if said.startswith("username=") else "***"
