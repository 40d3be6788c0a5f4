"""A pytest plugin: each failure is printed when it happens. A run that is stopped would not get to its list of failures.

It works through xdist: the process that prints hears of the tests of all workers.
"""

from __future__ import annotations

import pytest


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Comes after pytest's own, which makes the terminal. The workers of xdist have none."""
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    if terminal is not None:
        config.pluginmanager.register(_AtOnce(terminal))


class _AtOnce:
    def __init__(self, terminal: pytest.TerminalReporter) -> None:
        self._terminal = terminal

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._terminal.ensure_newline()
            self._terminal.write_sep("-", f"failed: {report.nodeid}, {report.when}")
            self._terminal.write_line(report.longreprtext)
