"""What is known about one key without a running updater: from Redis, and from the key's source.

`cacheupdater explain` and `invalidate` call these functions once each. What the configuration says is in `whose`. Only `removed`, for `invalidate`, writes anything.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from cacheupdater.adapters.glance_redis import Glance
from cacheupdater.adapters.writer_redis import writer_for
from cacheupdater.core import kinds
from cacheupdater.core.answers import FINISHING
from cacheupdater.core.mending import reads_as
from cacheupdater.errors import CacheUpdaterError, Faulty
from cacheupdater.pipeline.judging import compared_with
from cacheupdater.ports import Found
from cacheupdater.service.components import Components
from cacheupdater_client.protocol.errors import Inexpressible

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cacheupdater.adapters.glance_redis import Look
    from cacheupdater.config.secrets import Url
    from cacheupdater.config.settings import Config
    from cacheupdater.pipeline.recipe import Recipe
    from cacheupdater.ports import Value
    from cacheupdater.service.whose import Declared

ROW_S = (
    10.0  # seconds for the one statement of --connect: the time to connect, and the statement's own timeout
)


async def seen(cache: Url, key: bytes) -> dict[str, object]:
    """What Redis has at the key, for JSON; or why Redis does not answer."""
    glance = Glance(cache.reveal())
    try:
        look = await glance.look(key)
    except CacheUpdaterError as e:
        return {"error": str(e)}
    finally:
        await glance.close()
    return _for_json(look)


def _for_json(look: Look) -> dict[str, object]:
    return {
        "type": look.kind,
        "size": look.size,
        "reads_as": None if look.value is None else reads_as(look.value),
        "ttl": look.ttl,
        "age": look.age,
        "wrote": _wrote(look),
        "value": _shown(look.value),
    }


def _wrote(look: Look) -> str | None:
    """The form in which we wrote this value. As for the fence, a floor beside a value that does not read so says nothing."""
    return look.wrote if look.wrote is not None and kinds.reads(look.wrote, look.value) else None


SHOWN_BYTES = 200  # of a value: enough for a person to recognise it


def _shown(value: Value) -> str | None:
    if value is None:
        return None
    spelled = (
        value if isinstance(value, bytes) else b" ".join(name + b"=" + each for name, each in value.items())
    )
    text = spelled[:SHOWN_BYTES].decode(errors="backslashreplace")
    return text + ("..." if len(spelled) > SHOWN_BYTES else "")


async def row(config: Config, one: Declared, key: bytes) -> dict[str, object]:
    """The key's row now, and whether Redis has another value. Costs one statement."""
    if one.namespace is None:
        return {"error": "no namespace has this key, so no statement loads it"}
    if one.captures is None:
        return {"error": "the key does not fit its namespace's pattern, so no statement loads it"}
    async with AsyncExitStack() as stack:
        try:
            async with asyncio.timeout(ROW_S):
                recipe = Components(config, stack).recipe(one.namespace.name)
                found = (await recipe.loader.load([one.captures])).get(one.captures)
            value = None if found is None else recipe.encode(found)
        except TimeoutError:
            return {"error": f"the source did not answer within {ROW_S:g} s"}
        except (CacheUpdaterError, Inexpressible) as e:
            return {"error": str(e)}
    glance = Glance(config.cache.reveal())
    try:
        look = await glance.look(key)
    except CacheUpdaterError as e:
        return {"exists": found is not None, "value": _shown(value), "error": str(e)}
    finally:
        await glance.close()
    differs = [] if look.age is not None else _differing(recipe, look, found)
    return {
        "exists": found is not None,
        "value": _shown(value),
        "same": _as_read(recipe, look.value) == _as_read(recipe, value),
        "differs": differs,
    }


def _as_read(recipe: Recipe, value: Value) -> object:
    """The value for comparison: blanks and the order of fields do not count. A value that is not of this form is its bytes."""
    return kinds.decoded(recipe.form, value) or value


def _differing(recipe: Recipe, look: Look, row: object | None) -> list[str]:
    """The fields that the application writes in another way. Values of a Python loader too: this row has been loaded."""
    compared = compared_with(recipe, Found(here=look.kind != "none", age=None, value=look.value), row) or ()
    return [str(each) for each in compared if each.what]


async def removed(cache: Url, keys: Sequence[bytes]) -> Mapping[bytes, str]:
    """Removes these keys from Redis behind the fence. Returns the keys that stayed, and why."""
    kept: dict[bytes, str] = {}
    writer = writer_for(cache.reveal())
    try:
        for key in keys:
            try:
                [answer] = await writer.invalidate([key])
            except Faulty as e:
                kept[key] = str(e)
            else:
                if answer.result not in FINISHING:
                    kept[key] = answer.why or answer.result.value
    finally:
        await writer.close()
    return kept
