"""What may be printed of an address, and of texts by others that may hold one. Every output passes through this module.

We know the structure of our own URLs. So `url` shows only what cannot be a user or a password: scheme, hosts, path, and
options that are known to be harmless. We know nothing of texts by others: a driver's error, a line of a file, a traceback.
So `text` and `line` cut whatever might be an address, up to the end of its line, unless it plainly has no user. They also
remove the passwords that were kept, wherever these stand. `foreign` removes users too, but only as whole words: a user is
often a word like `shop`, which our own sentences need.

This module knows no driver and reads nothing. Each process has one list of secrets, filled where URLs are read.
"""

from __future__ import annotations

import json
import re
from urllib.parse import quote, unquote, unquote_plus

MASK = "***"
KEPT_MAX = 1000  # secrets of one process: each reload of a file may bring new ones
SHORTEST = 4  # characters: a shorter password is a part of ordinary words, and every text would be wiped out
TEXT_MAX = 1 << 18  # characters that are looked at

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,40}")
_BEGIN = re.compile(r"(?<![A-Za-z0-9+.-])[A-Za-z][A-Za-z0-9+.-]{0,40}://|://")
_OURS = r"(?:redis|rediss|unix|tcp|memory|kafka|https?|[a-z]{2,20}sql|cockroachdb|mariadb|oracle|postgres|sqlite)(?:\+[a-z0-9+]+)?://"
# the beginning of an address that we or a driver can use; any other may be the end of a password
_KNOWN = re.compile(rf"""(?:^|.*[\s"'`(\[{{<=,]){_OURS}""", re.DOTALL)
_MASKED = re.compile(rf"({_OURS})\*\*\*@")  # masked by us before
_HOST = r"(?:\[[0-9A-Fa-f:.%]+\]|[\w.-]+)(?::[0-9]{1,5})?"
_HOSTS = rf"(?:{_HOST}(?:,{_HOST})*)?"
_TAIL = re.compile(rf"(?P<where>{_HOSTS}(?:/[\w.~/%*+-]*)?)(?:\?(?P<options>[^#]*))?")
_HARMLESS = (
    "address_family|ca|cache|cert|client_name|db|decode_responses|evicting|group|host|instance|key|length|max_connections|mode|partitions|password_file|port"
    "|prepared_statement_cache_size|protocol|retry_on_timeout|sasl|session_timeout|socket_connect_timeout|socket_keepalive"
    "|socket_timeout|ssl|ssl_ca_certs|ssl_cert_reqs|ssl_certfile|ssl_check_hostname|ssl_keyfile|sslmode|stream|table|target_session_attrs|tls|token_file|uri"
)
"""Options whose values are shown: files, times, numbers and switches."""
_NAMES = rf"(?:{_HARMLESS}|application_name|charset|command_timeout|timeout|(?:sentinel_)?(?:user|username|passwd|password|pwd)|secret|token)"
"""Options whose names are shown. Any other name may be a piece of a password that holds an `&`."""
_OPTION = re.compile(rf"(?:{_HARMLESS})=[\w.:/,~-]*|{_NAMES}=\*\*\*|\*\*\*")
_NAME = re.compile(rf"{_NAMES}(?==)")
# An address in a text, plainly without a user, up to its end. A colon ends it only before a blank.
_PLAIN = re.compile(
    rf"(?:\*\*\*|(?:\*\*\*@)?{_HOSTS}(?:/[\w.~/%*+-]*)?)(?:\?(?:{_OPTION.pattern})(?:&(?:{_OPTION.pattern}))*)?"
    r"(?=[\s\"',;)\]}>…]|[:.!](?:\s|$)|$)"
)
# `password=…` in a text: to the end of the line, for nobody knows where the password ends. Our own texts write dots.
_SAID = re.compile(
    r"""(?P<name>\b\w*(?:passw(?:or)?d|pwd|secret|token|username|user)["']?=)(?!\.\.\.|…|\*\*\*|"?\*\*\*).*""",
    re.IGNORECASE,
)
_IN_YAML = re.compile(
    r"""(?P<name>\b(?:password|passwd|pwd|secret|token|username|user)["']?\s*:\s).*""", re.IGNORECASE
)

_passwords: dict[str, None] = {}
_users: dict[str, None] = {}


def url(said: str) -> str:
    """A whole URL, without its user, its password and the options that could be either."""
    scheme, found, rest = said.partition("://")
    if not found or not _SCHEME.fullmatch(scheme):
        return MASK
    before, at, tail = rest.rpartition("@")
    match = _TAIL.fullmatch(tail)
    if match is None or any(sign in before for sign in "@/?#"):  # where the user ends is not certain
        return f"{scheme}://{MASK}"
    options = "" if match["options"] is None else "?" + "&".join(map(_option, match["options"].split("&")))
    return f"{scheme}://{MASK + '@' if at else ''}{match['where']}{options}"


def _option(said: str) -> str:
    if _OPTION.fullmatch(said):
        return said
    name = _NAME.match(said)
    return f"{name[0]}={MASK}" if name else MASK


def text(said: str) -> str:
    """A text that may hold anything: a message, ours or a driver's."""
    cut = said[:TEXT_MAX]
    if len(said) > TEXT_MAX:  # what was cut off may have been the end of an address
        cut = cut.rpartition("\n")[0] + "…"
    return "\n".join(_line(each) for each in _without(cut, _passwords).split("\n"))


def foreign(said: str) -> str:
    """A driver's own words, without the users that were kept."""
    return text(_without(said, _users, whole=True))


def trace(said: str) -> str:
    """A traceback. A line that belongs to no frame is an error's own text, and may be any library's."""
    return "\n".join(
        text(each) if each.startswith(("  File ", "    ")) else foreign(each) for each in said.split("\n")
    )


def line(said: str) -> str:
    """A line of a configuration file, well formed or not. A URL may span several lines, so text before an @ is cut too."""
    shown = _IN_YAML.sub(rf"\g<name>{MASK}", _line(_without(said, _passwords)))
    if shown != MASK and "@" not in _MASKED.sub(r"\1", shown):
        return shown
    key = re.match(r"[\s-]*(?:[\w.-]+:\s+)?", said)
    return (key[0] if key else "") + MASK


def value(said: str) -> str:
    """A value of the file that should not be a URL, but may be one by mistake."""
    return url(said) if "://" in said or "@" in said else text(said)


def _line(said: str) -> str:
    """If an @ follows a `://`, all between them is cut: it may be a user and a password, and a password may hold a `://`. If
    no scheme that we know stands before the `://`, the password may have begun earlier, and the whole line is cut. Without
    an @, each stretch from one `://` to the next is kept if it is plainly harmless."""
    begins = [match.span() for match in _BEGIN.finditer(said)]
    if not begins:
        return _SAID.sub(rf"\g<name>{MASK}", said)
    first, end = begins[0]
    before = _SAID.sub(rf"\g<name>{MASK}", said[:first])
    if "@" in _MASKED.sub(r"\1", said)[first:]:
        return before + said[first:end] + MASK if _KNOWN.fullmatch(said[:end]) else MASK
    parts = [before]
    for (start, end), (following, _) in zip(begins, [*begins[1:], (len(said), 0)], strict=True):
        last = following == len(said)
        plain = _PLAIN.match(
            said[end:following] + ("" if last else "\0")
        )  # an address that continues in the next stretch has not ended
        if plain:
            rest = _SAID.sub(rf"\g<name>{MASK}", said[end + plain.end() : following])
            parts += [said[start:end], plain[0], rest]
        else:
            parts += [said[start:end], MASK]  # to the end: it may hold a `://` itself
            break
    return "".join(parts)


def keep(said: str) -> None:
    """Remembers the parts of a URL that must not be printed: its user and password, as spelled there and as decoded."""
    rest = said.partition("://")[2]
    user, _, password = rest.rpartition("@")[0].partition(":")
    keep_user(user)
    keep_password(password)
    for each in rest.partition("?")[2].split("&"):
        name, _, secret = each.partition("=")
        if name.lower().endswith(("username", "user")):
            keep_user(secret)
        elif name.lower().endswith(("password", "passwd", "pwd", "secret", "token")):
            keep_password(secret)


def keep_user(said: str) -> None:
    _remember(_users, said)


def keep_password(said: str) -> None:
    _remember(_passwords, said)


def _remember(secrets: dict[str, None], said: str) -> None:
    """Remembers every spelling that a text may use. The oldest is forgotten first."""
    for each in (said, unquote(said), unquote_plus(said)):
        for spelled in (each, quote(each, safe=""), repr(each)[1:-1], json.dumps(each)[1:-1]):
            if len(spelled) >= (1 if secrets is _users else SHORTEST):
                secrets.pop(spelled, None)
                secrets[spelled] = None
    while len(secrets) > 12 * KEPT_MAX:
        del secrets[next(iter(secrets))]


def _without(said: str, secrets: dict[str, None], *, whole: bool = False) -> str:
    for secret in sorted(secrets, key=len, reverse=True):
        if secret in said and secret != MASK:
            said = (
                re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", MASK, said)
                if whole
                else said.replace(secret, MASK)
            )
    return said


def ambiguity(said: str, *, sql: bool) -> str:
    """Why a driver might take a part of the user or the password for the host, or the other way round; else an empty text.

    SQLAlchemy ends a password at the first `@`. redis-py ends a host at the first `/`, `?` or `#`, as the standard says.
    """
    rest = said.partition("://")[2]
    before, found, _ = rest.rpartition("@")
    user = before.partition(":")[0]
    wrong = [
        sign
        for sign in "@/?#[]"
        if sign in (before if not sql or sign == "@" else user if sign == "/" else "")
    ]
    if not found or not wrong:
        return ""
    codes = " ".join(f"{quote(sign, safe='')} for {sign}" for sign in wrong)
    return f"cannot be read for certain: {' '.join(wrong)} stands before its last @; in a user, password or option write {codes}"
