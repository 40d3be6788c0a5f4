"""Which tools judged the chart, at the end of the run: what was not told was not tried."""

from kube.chart_tools import TOLD


def pytest_terminal_summary(terminalreporter):
    for each in TOLD:
        terminalreporter.write_line(f"chart: {each}")
