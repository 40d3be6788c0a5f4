"""One API server for all tests of this folder. At the end of the run it prints which programs judged and how pods ran."""

from __future__ import annotations

import pytest
from containers.contained import how
from kube.binaries import binaries
from kube.chart_tools import TOLD, crds
from kube.cluster import Cluster
from kube.release import CALLS

# some files of values need this object in the cluster
PRESUMED = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "high"},
    "value": 1000,
}


@pytest.fixture(scope="session")
def cluster():
    with Cluster(binaries()) as made:
        made.define(crds())
        made.must(PRESUMED)
        yield made


def pytest_terminal_summary(terminalreporter):
    for each in [*TOLD, f"pods ran {how}"]:
        terminalreporter.write_line(f"cluster: {each}")
    counted = ", ".join(f"{CALLS.count(each)} {each}" for each in dict.fromkeys(CALLS))
    terminalreporter.write_line(f"cluster: calls of helm: {counted or 'none'}")
