"""Prints at the end of the run which tools judged the chart. A tool that the list does not name was not tried."""

from kube.chart_tools import TOLD


def pytest_terminal_summary(terminalreporter):
    for each in TOLD:
        terminalreporter.write_line(f"chart: {each}")
