"""Adopts cacheupdater in a stock application, which reads while an updater starts beside it.

A `Trial` is one namespace: one way of caching, one configuration, a cache that is full or empty at the start. Many trials
share one updater and one application, so that a story takes seconds. The right configurations are those of the page for
adopters.
"""

from __future__ import annotations

import io
import json
import re
import time
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from typing import NamedTuple

from ruamel.yaml import YAML
from suite.pace import PATIENCE_S

from cacheupdater.cli import main
from cacheupdater_client.protocol.fence import floor_name

PRODUCTS = 22  # more than a verdict needs
CHANGED = 7  # the product whose price changes; its keys never expire in a story
PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "adopt.md"
_BLOCK = re.compile(r"^```(?P<kind>yaml|python)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


class Trial(NamedTuple):
    """`wrong` is the mistake that must be reported; empty if the configuration is right."""

    way: str
    called: str
    cache: str  # full or empty, when the updater starts
    says: dict  # of the namespace, beside its key
    wrong: str = ""

    @property
    def shop(self):
        return f"{self.called}-{self.cache}"

    @property
    def name(self):
        return f"{self.way}-{self.shop}"

    def __str__(self):
        return self.name


def both(way, called, says, wrong=""):
    """Two trials: with a full cache and with an empty one."""
    return [Trial(way, called, cache, says, wrong) for cache in ("full", "empty")]


def full(way, called, says, wrong):
    """One trial, with a full cache."""
    return [Trial(way, called, "full", says, wrong)]


@cache
def examples():
    """The namespaces that the page for adopters shows, by name."""
    reader, shown = YAML(typ="safe"), {}
    for block in _BLOCK.finditer(PAGE.read_text()):
        if block["kind"] == "yaml":
            shown |= reader.load(block["text"])["namespaces"]
    return shown


def modules():
    """The Python files that the page shows, by the paths that they begin with."""
    texts = [block["text"] for block in _BLOCK.finditer(PAGE.read_text()) if block["kind"] == "python"]
    return {found[1]: text for text in texts if (found := re.match(r"# (\S+[.]py)\n", text))}


def _prefix(way):
    return examples()[way]["key"].partition("{")[0]


def namespaces(trials):
    """The updater's namespaces: each trial has keys of its own."""
    return {
        each.name: {
            "key": f"{each.says.get('key', examples()[each.way]['key']).partition('{')[0]}{each.shop}:{{id:int}}",
            **{name: said for name, said in each.says.items() if name != "key"},
            "refresh": {"every": "200ms"},
            "ttl": "5m",  # the applications have the same
        }
        for each in trials
    }


class Application:
    """A stock application, as its readers see it."""

    def __init__(self, reads, plain):
        """`reads` takes way, shop and number; it is replaced when our client comes in. `plain` is a client for looking."""
        self.reads = reads
        self.plain = plain
        self.errors = []

    def read(self, trial, number):
        """The value that a reader gets. Errors are kept: no story expects any."""
        try:
            return self.reads(trial.way, trial.shop, number)
        except Exception as e:  # noqa: BLE001  a broken value may raise anything in its reader
            self.errors.append(f"{trial} {number}: {type(e).__name__}: {e}")

    def key(self, trial, number):
        return f"{_prefix(trial.way)}{trial.shop}:{number}".encode()

    def fill(self, trials):
        """Fills the cache, before cacheupdater comes in."""
        for trial in trials:
            for number in range(1, PRODUCTS + 1):
                self.read(trial, number)

    def values(self, trial):
        """The values in Redis, of any kind; None where there is none."""
        keys = [self.key(trial, number) for number in range(1, PRODUCTS + 1)]
        return [
            self.plain.hgetall(key) if self.plain.type(key) == b"hash" else self.plain.get(key)
            for key in keys
        ]

    def floors(self, trial):
        """The products whose values an updater has written."""
        numbers = range(1, PRODUCTS + 1)
        return [each for each in numbers if self.plain.exists(floor_name(self.key(trial, each)))]

    def refreshed(self, trials):
        """Whether an updater has written all values."""
        return all(len(self.floors(each)) == PRODUCTS for each in trials)

    def live_until(self, condition, trials, *, expiring=True):
        """Readers come, and values expire, until the condition holds. If none expires, every reader must find one."""
        deadline, turn = time.monotonic() + PATIENCE_S, 0
        while not condition():
            assert time.monotonic() < deadline, "the application waits in vain"
            assert self.errors == []
            turn += 1
            for trial in trials:
                gone = 1 + turn % PRODUCTS
                if expiring and gone != CHANGED:
                    self.plain.delete(self.key(trial, gone))
                for number in range(1, PRODUCTS + 1):
                    assert expiring or self.plain.exists(self.key(trial, number)), f"{trial} {number} is lost"
                    self.read(trial, number)


def told(updater, trials):
    """Whether `/readyz` names each wrong configuration."""
    said = "\n".join(updater.troubles)
    return all(f"foreign {each}: " in said for each in trials if each.wrong)


def command(updater, *arguments):
    said = io.StringIO()
    with redirect_stdout(said), redirect_stderr(io.StringIO()):
        code = main([*arguments, "-c", str(updater.file)])
    return code, said.getvalue()


def checked(updater, *, code):
    """The results of `check --connect` on values, by namespace: state and text. `code` is how the command must end."""
    ended, said = command(updater, "check", "--connect")
    assert ended == code, said
    lines = said[said.rindex("CONTACTED") :].splitlines()[1:]
    rows = [re.split(r"  +", line, maxsplit=3) for line in lines]
    return {name: (state, text) for part, name, state, text in rows if part == "values"}


def explained(updater, key):
    return " ".join(json.loads(command(updater, "explain", key, "-o", "json")[1])["because"])


def reload(updater):
    """The updater reads its file now."""
    assert command(updater, "reload")[0] == 0


def restart(updater):
    """A new process reads the file."""
    updater.terminate()
    assert updater.wait() == 0
    updater.start()


def mend(updater, trials):
    """Writes the right configuration of each namespace into the file. Returns these trials, which have the same keys as before."""
    mended = [each._replace(says=examples()[each.way], wrong="") for each in trials]
    rewrite(updater, namespaces=namespaces(mended))
    return mended


def rewrite(updater, **sections):
    """Replaces these sections of its file."""
    updater.file.write_text(json.dumps(json.loads(updater.file.read_text()) | sections))


def freshness(updater):
    return command(updater, "freshness")[1]
