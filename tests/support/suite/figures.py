"""A pytest plugin: figures that a test records (`record_property("figure: ...", text)`) are printed at the end of the run.

It works through xdist, which loses what its workers print.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

MARK = "figure: "


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Adds up the numbers of one name over all tests that passed, and lists its texts side by side."""
    sums: Counter[str] = Counter()
    texts: dict[str, set[str]] = {}
    for report in terminalreporter.stats.get("passed", ()):
        for name, value in report.user_properties:
            if not name.startswith(MARK):
                continue
            if isinstance(value, str):
                texts.setdefault(name.removeprefix(MARK), set()).add(value)
            else:
                sums[name.removeprefix(MARK)] += value
    for name, value in sorted(sums.items()):
        terminalreporter.write_line(f"{name}: {value:,.1f}" if value % 1 else f"{name}: {value:,.0f}")
    for name, said in sorted(texts.items()):
        terminalreporter.write_line(f"{name}: {', '.join(sorted(said))}")
