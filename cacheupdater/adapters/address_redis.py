"""The URL of the Redis that an application's client talks to, for an updater that runs by its declarations.

Reads redis-py's public attributes, and contacts nothing. The URL holds the client's password, so its only caller hands it to
the configuration, which shows it nowhere. What no URL can say, such as a provider of credentials, is refused.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlencode

from cacheupdater.errors import Misconfigured

_FILES = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
_UNSAYABLE = ("credential_provider", "ssl_ca_data", "ssl_password")


def url_of(client: Any) -> str:
    """Raises Misconfigured for a client that no URL describes."""
    pool = getattr(client, "connection_pool", None)
    if pool is None:
        return _of_cluster(client)
    said = pool.connection_kwargs
    tls = "SSL" in pool.connection_class.__name__
    if hasattr(pool, "sentinel_manager"):
        return _of_sentinel(pool, said, tls=tls)
    if "path" in said:
        options = {"db": said.get("db") or 0}
        return f"unix://{_user(said)}{quote(said['path'])}?{urlencode(options)}"
    where = f"{_host(said.get('host') or 'localhost')}:{said.get('port') or 6379}/{said.get('db') or 0}"
    return f"redis{'s' if tls else ''}://{_user(said)}{where}{_options(said, tls=tls)}"


def _of_cluster(client: Any) -> str:
    said = getattr(client, "connection_kwargs", None) or client.nodes_manager.connection_kwargs
    tls = bool(said.get("ssl")) or "SSL" in getattr(said.get("connection_class"), "__name__", "")
    nodes = client.nodes_manager.startup_nodes.values()
    hosts = ",".join(f"{_host(each.host)}:{each.port}" for each in nodes)
    return f"redis{'s' if tls else ''}+cluster://{_user(said)}{hosts}{_options(said, tls=tls)}"


def _of_sentinel(pool: Any, said: dict[str, Any], *, tls: bool) -> str:
    asked = [each.connection_pool.connection_kwargs for each in pool.sentinel_manager.sentinels]
    hosts = ",".join(f"{_host(each['host'])}:{each['port']}" for each in asked)
    names = ("username", "password")
    more = {f"sentinel_{name}": asked[0][name] for name in names if asked and asked[0].get(name)}
    where = f"{hosts}/{pool.service_name}/{said.get('db') or 0}"
    return f"redis{'s' if tls else ''}+sentinel://{_user(said)}{where}{_options(said, tls=tls, more=more)}"


def _user(said: dict[str, Any]) -> str:
    for name in _UNSAYABLE:
        if said.get(name) is not None:
            raise Misconfigured(
                f"the cache's client has a {name}, which no URL can say; name the Redis in a file, as `cache: {{url: …}}`"
            )
    user, password = (said.get(name) or "" for name in ("username", "password"))
    return f"{quote(user, safe='')}:{quote(password, safe='')}@" if user or password else ""


def _options(said: dict[str, Any], *, tls: bool, more: dict[str, str] | None = None) -> str:
    options: dict[str, Any] = dict(more or {})
    if tls:
        options |= {name: said[name] for name in _FILES if said.get(name)}
        wanted = said.get("ssl_cert_reqs", "required")
        names = {0: "none", 1: "optional", 2: "required"}
        options["ssl_cert_reqs"] = wanted if isinstance(wanted, str) else names[int(wanted or 0)]
        if said.get("ssl_check_hostname") is False:
            options["ssl_check_hostname"] = "False"
    return f"?{urlencode(options)}" if options else ""


def _host(name: str) -> str:
    return f"[{name}]" if ":" in name else name
