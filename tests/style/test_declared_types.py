"""A type checker knows what a declared value returns."""

from __future__ import annotations

import re
import subprocess
import sys

PROGRAM = """
import cacheupdater_client, cacheupdater_client.asyncio
cache = cacheupdater_client.Cache(None)
later = cacheupdater_client.asyncio.Cache(None)

@cache.value("p:{id:int}", ttl="1m")
def product(id: int) -> dict[str, int]: ...

@cache.values("q:{sku}", ttl="1m", encoding="msgpack")
def prices(skus: list[str]) -> dict[str, float]: ...

@later.value("p:{id:int}", ttl="1m")
async def awaited(id: int) -> bytes | None: ...

@later.values("q:{sku}", ttl="1m")
async def many(skus: list[str]) -> dict[str, float]: ...

class Catalogue:
    @cache.value("t:{id:int}", ttl="1m")
    def title(self, id: int) -> str: ...

async def main() -> None:
    reveal_type(product(7))
    reveal_type(prices.get_many(["a"]))
    reveal_type(await awaited(7))
    reveal_type(await many.get_many(["a"]))
    reveal_type(Catalogue().title(7))

cache.value("p:{id:int}", ttl=60)
cache.value("p:{id:int}")
cache.value("p:{id:int}", ttl="1m", encoding="pickle")
"""


def test_mypy_knows_the_result_of_a_declared_value_and_its_settings(tmp_path):
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    # a process of its own: mypy raises the interpreter's recursion limit for good, and other tests count on the usual one
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--cache-dir",
        str(tmp_path / "cache"),
        "--follow-imports=silent",
        str(file),
    ]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    assert re.findall(r'Revealed type is "(.*)"', said) == [
        "dict[str, int] | None",
        "dict[str, float]",
        "bytes | None",
        "dict[str, float]",
        "str | None",
    ]
    errors = re.findall(r"error: (.*?)  ", said)
    assert len(re.findall(r"\[empty-body\]", said)) + 3 == said.count("error:"), said
    assert any('"ttl"' in each for each in errors), said
