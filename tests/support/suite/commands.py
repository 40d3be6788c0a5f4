"""Commands of the CLI in this process, on the smallest file that names a queue. They read nothing else of the file."""

from __future__ import annotations

import asyncio

from cacheupdater.adapters.depot_sql import depot_at
from cacheupdater.cli import main
from cacheupdater.core import depot_url

FILE = """\
version: 1
queue: {url: "%s"}
cache: {url: "redis://127.0.0.1:1/0"}
sources: {main: {budget: 500/s}}
namespaces: {banner: {key: "banner:{slot}", load: {source: main, python: "no_such_module:banners"}}}
"""


def on_a_queue(folder, capsys):
    """run(url, *words): the command's exit code, and what it printed to stdout and stderr."""

    def run(url, *words):
        file = folder / "shop.yaml"
        file.write_text(FILE % url)
        code = main([*words, "-c", str(file)])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


def put(url, *packs):
    """These packs, each with its partition, lie in the queue in a SQL database."""

    async def run():
        depot = depot_at(depot_url.parse(url))
        await depot.open()
        await depot.put(packs)
        await depot.close()

    asyncio.run(run())
