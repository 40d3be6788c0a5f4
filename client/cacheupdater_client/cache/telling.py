"""What the cache logs: one line for each declared value whose keys hold values of somebody else.

`steps` calls `foreign` at the first such value. The line names the declared value and its pattern, and no key. Nothing is
kept here: the caller's count says whether the line was said.
"""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cacheupdater_client.cache.declared import Declared

log = logging.getLogger("cacheupdater_client")


def foreign(declared: Declared) -> None:
    """Redis holds a value that the cache did not write and cannot read. The cache leaves such a value alone."""
    with contextlib.suppress(Exception):  # the application's own handlers and filters run here
        log.warning(
            "%s: Redis holds values of the pattern %r that are not %s. The cache did not write them and leaves them, so each "
            "read of such a key calls the loader. Delete these values, or declare the value with the encoding that they "
            "have, or with another pattern.",
            declared.name,
            declared.pattern.text,
            declared.codec.form,
        )
