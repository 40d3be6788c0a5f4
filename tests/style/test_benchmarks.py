"""Benchmarks call only what exists: no whole run of the suite starts them, and a renamed method had broken one unseen."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ABSENT = re.compile(
    r"^(.*\[(?:attr-defined|call-arg|name-defined|import-not-found)\]|.* is missing following .* protocol members?:)$",
    re.MULTILINE,
)


@pytest.mark.timeout(600)  # 3 s after `make lint`, whose cache has all but the benchmarks; 20 s without it
def test_benchmarks_call_only_what_exists():
    files = sorted(str(each.relative_to(ROOT)) for each in (ROOT / "benchmarks").glob("*.py"))
    said = subprocess.run(
        [sys.executable, "-m", "mypy", *files],
        cwd=ROOT,
        env={**os.environ, "MYPYPATH": "benchmarks"},  # noqa: TID251  handed on, not read
        capture_output=True,
        text=True,
        check=False,
    )
    assert f"{len(files)} source files" in said.stdout
    assert ABSENT.findall(said.stdout) == []
