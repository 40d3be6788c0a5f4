"""An updater's arrays take memory by small pages: the first touch of a huge page would delay a turn of the loop."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

MODE = Path("/sys/kernel/mm/transparent_hugepage/enabled")
BEGUN = """
import cacheupdater.__main__
import numpy as np
touched = np.ones(8 << 20)
print(next(line for line in open("/proc/self/smaps_rollup") if line.startswith("AnonHugePages")).split()[1])
"""


def in_huge_pages():
    """KiB in huge pages after a process that began as the command does has touched 64 MiB."""
    done = subprocess.run(
        [sys.executable, "-c", BEGUN], capture_output=True, text=True, check=True, timeout=60
    )
    return int(done.stdout)


@pytest.mark.skipif(
    not MODE.exists() or "[madvise]" not in MODE.read_text(),
    reason="this system gives huge pages to all or to none, whoever asks",
)
def test_arrays_take_small_pages_unless_somebody_asks_for_huge_ones(monkeypatch):
    monkeypatch.delenv("NUMPY_MADVISE_HUGEPAGE", raising=False)
    assert in_huge_pages() == 0
    monkeypatch.setenv("NUMPY_MADVISE_HUGEPAGE", "1")
    assert in_huge_pages() > 0
