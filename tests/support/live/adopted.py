"""An example application in two forms: as it is committed, and as the stock application that it was before.

The page of the example begins with the difference. Without the added lines and with the removed ones, the committed
application is the stock one. Tests serve both over one Redis and one database.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

from ruamel.yaml import YAML

from cacheupdater.local.ports import free_port
from live.updater_process import eventually

ROOT = Path(__file__).parents[3]
HTTP_S = 30.0
ASKED = Path(__file__).with_name("asked.py")


def before(text, page):
    """The application without what the page's first block adds, and with what it removes."""
    block = re.search(r"^```diff\n(.*?)^```", page, re.MULTILINE | re.DOTALL)[1]
    for hunk in filter(None, re.split(r"^@@.*\n", block, flags=re.MULTILINE)):
        lines = [line if line[0] in " +-" else f" {line}" for line in hunk.splitlines(keepends=True)]
        ours = "".join(line[1:] for line in lines if line[0] != "-")
        assert text.count(ours) == 1, f"the page says what the example has not:\n{ours}"
        text = text.replace(ours, "".join(line[1:] for line in lines if line[0] != "+"))
    assert "cacheupdater_client" not in text
    return text


class Adopted:
    """Both forms in folders of their own, where they have the same name of a module."""

    def __init__(self, folder, example, page, redis_url):
        self.page = (ROOT / "docs" / "how-to" / page).read_text()
        self.example = ROOT / "examples" / example
        self.text = (self.example / "shop.py").read_text()
        self.folder = folder
        self.database = folder / "shop.db"
        self.places = {"REDIS_URL": redis_url, "SHOP_DB": str(self.database)}
        for name, text in ("ours", self.text), ("stock", before(self.text, self.page)):
            (folder / name).mkdir()
            (folder / name / "shop.py").write_text(text)

    @property
    def settings(self):
        """The example's configuration, for an Updater that says itself where it listens."""
        said = YAML(typ="safe").load(self.example / "cacheupdater.yaml")
        return {name: section for name, section in said.items() if name != "listen"}

    def environ(self, form, emit="none"):
        paths = os.pathsep.join((str(self.folder / form), str(ROOT), str(ROOT / "client")))
        ours = {**self.places, "PYTHONPATH": paths, "CACHEUPDATER_EMIT": emit}
        return {**os.environ, **ours}  # noqa: TID251  handed on to a child

    @contextmanager
    def _running(self, form, emit, *command, **pipes):
        with (
            (self.folder / f"{form}.log").open("ab") as log,
            subprocess.Popen(
                [sys.executable, *command],
                env=self.environ(form, emit),
                cwd=self.folder / form,
                stderr=log,
                **{"stdout": log, **pipes},
            ) as process,
        ):
            try:
                yield process
            finally:
                process.terminate()

    @contextmanager
    def serving(self, form, emit="none"):
        """One form behind Flask's server, as a function from paths to what the server answers."""
        port = free_port()
        with self._running(form, emit, "-m", "flask", "--app", "shop", "run", "--port", str(port)):
            eventually(lambda: _answers(port))
            yield lambda path: _get(port, path)

    @contextmanager
    def asked(self, form, emit="none"):
        """One form that is an application of FastAPI, as a function from paths to its answers."""
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with self._running(form, emit, "-P", str(ASKED), **pipes) as process:

            def get(path):
                process.stdin.write(f"/{path}\n")
                process.stdin.flush()
                return json.loads(process.stdout.readline())

            yield get


def _get(port, path):
    """The answer: JSON, or its status if it is an error."""
    try:
        with urlopen(f"http://127.0.0.1:{port}/{path}", timeout=HTTP_S) as answer:
            text = answer.read().decode()
    except HTTPError as e:
        with e:
            return e.code
    return json.loads(text) if text[:1] in "{[n" else text


def _answers(port):
    try:
        return _get(port, "")
    except OSError:
        return None
