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


@pytest.mark.timeout(600)  # mypy without its cache: 20 s on a quiet machine
def test_benchmarks_call_only_what_exists(tmp_path):
    files = sorted(each.name for each in (ROOT / "benchmarks").glob("*.py"))
    options = [
        "--check-untyped-defs",
        "--ignore-missing-imports",
        "--follow-imports=silent",
        "--explicit-package-bases",
    ]
    command = [sys.executable, "-m", "mypy", "--config-file=", "--cache-dir", str(tmp_path), *options, *files]
    paths = os.pathsep.join((str(ROOT), str(ROOT / "client"), "."))
    said = subprocess.run(
        command,
        cwd=ROOT / "benchmarks",
        env={**os.environ, "MYPYPATH": paths},  # noqa: TID251  handed on, not read
        capture_output=True,
        text=True,
        check=False,
    )
    assert f"{len(files)} source files" in said.stdout
    assert ABSENT.findall(said.stdout) == []
