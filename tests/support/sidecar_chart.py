"""The consumer chart of tests/sidecar, rendered by the real helm as an operator's chart would be.

`helm` is looked for on PATH, then where this project keeps tools (`~/.cache/cacheupdater/tools`), then where `go install`
puts it; tests that find none are left out and say how to get one. `python tests/support/sidecar_chart.py` writes the
golden files anew.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import pytest
from ruamel.yaml import YAML

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "cacheupdater-sidecar"
HOME = ROOT / "tests" / "sidecar"
PLAIN = ROOT / "examples" / "02-sidecar" / "kubernetes.yaml"  # what it renders, for those without it
CASES = sorted((HOME / "consumer" / "ci").glob("*-values.yaml"))
GO = "go install helm.sh/helm/v3/cmd/helm@latest"


@cache
def found():
    """Where helm is; None where it is not."""
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")  # noqa: TID251  where tools are kept
    kept = [caches / "cacheupdater" / "tools" / "helm", Path.home() / "go" / "bin" / "helm"]
    return shutil.which("helm") or next((str(each) for each in kept if each.is_file()), None)


def helm():
    """The program, or the test is left out."""
    return found() or pytest.skip(f"no helm: put one on PATH ({GO})")


def packed(folder):
    """The consumer with the library in its charts/, as `helm dependency update` leaves it."""
    chart = Path(folder) / "shop"
    shutil.copytree(HOME / "consumer", chart)
    shutil.copytree(CHART, chart / "charts" / CHART.name)
    return chart


def run(*args):
    return subprocess.run([helm(), *map(str, args)], capture_output=True, text=True, timeout=60, check=False)


def render(chart, *options):
    """The manifest; the whole of helm's complaint where there is none."""
    done = run("template", "shop", chart, "--namespace", "web", *options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def objects(manifest):
    """By kind."""
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
