"""The consumer chart of tests/sidecar, rendered by the real helm as an operator's chart would be.

`make chart` renders it (`chart_tools` provides helm). `make test` reads the plain manifest alone; `make chart` checks that it
equals the rendered one. `PYTHONPATH=tests/support python -m kube.sidecar_chart` writes the golden files anew.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from ruamel.yaml import YAML

from kube.chart_tools import NEWEST, helm, ran

ROOT = Path(__file__).parents[3]
CHART = ROOT / "charts" / "cacheupdater-sidecar"
HOME = ROOT / "tests" / "sidecar"
PLAIN = (
    ROOT / "examples" / "02-sidecar" / "kubernetes.yaml"
)  # the rendered manifest, for users without the chart
CASES = sorted((HOME / "consumer" / "ci").glob("*-values.yaml"))


def packed(folder):
    """The consumer chart with the library in its charts/, as `helm dependency update` leaves it."""
    chart = Path(folder) / "shop"
    shutil.copytree(HOME / "consumer", chart)
    shutil.copytree(CHART, chart / "charts" / CHART.name)
    return chart


def run(*args):
    return ran(helm(), *args)


def template(chart, *options):
    """The output of `helm template`, and how it ended."""
    return run("template", "shop", chart, "--namespace", "web", "--kube-version", NEWEST, *options)


def render(chart, *options):
    """The manifest, or all of helm's error text."""
    done = template(chart, *options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def objects(manifest):
    """The objects by kind."""
    return {each["kind"]: each for each in YAML(typ="safe", pure=True).load_all(manifest) if each}


def pod(manifest):
    return objects(manifest)["Deployment"]["spec"]["template"]["spec"]


def sidecar(manifest):
    (container,) = pod(manifest)["initContainers"]
    return container


def configuration(manifest):
    """The text of cacheupdater.yaml."""
    return objects(manifest)["ConfigMap"]["data"]["cacheupdater.yaml"]


def main():
    with tempfile.TemporaryDirectory() as folder:
        chart = packed(folder)
        for case in CASES:
            golden = HOME / "golden" / case.name.replace("-values", "")
            golden.write_text(render(chart, "--values", case))
            print(golden, file=sys.stderr)


if __name__ == "__main__":
    main()
