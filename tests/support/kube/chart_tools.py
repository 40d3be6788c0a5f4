"""The real tools that judge the chart: helm, kubernetes-validate, checkov, promtool, and the CRDs of KEDA and the Prometheus
operator.

Each tool is taken from PATH, or else from the user's cache folder, where its first use puts it: helm is built from its Go
module, and the Python tools get an environment of their own (checkov alone is 290 MB). promtool is only looked for: it comes
with Prometheus, for which distributions have packages. The run prints which tools ran, so that
its result is not overrated. Tests whose tool cannot be had are skipped, with the reason.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from ruamel.yaml import YAML

ROOT = Path(__file__).parents[3]
CHART = ROOT / "charts/cacheupdater"
CACHE = Path.home() / ".cache/cacheupdater/tools"
HELM = "helm.sh/helm/v3/cmd/helm@v3.22.0"
PYTHON_TOOLS = ["kubernetes-validate==1.37.0", "checkov==3.3.30"]
VERSIONS = [
    "1.29",
    "1.33",
    "1.36",
]  # the oldest with native sidecars by default, the one most run, a late one
NEWEST = "1.36.0"  # for templates; a helm that was built from its module assumes 1.20
CRDS = {
    "github.com/kedacore/keda/v2@v2.21.0": ["config/crd/bases/keda.sh_scaledobjects.yaml"],
    "github.com/prometheus-operator/prometheus-operator@v0.85.0": [
        f"example/prometheus-operator-crd/monitoring.coreos.com_{each}.yaml"
        for each in ("podmonitors", "servicemonitors", "prometheusrules")
    ],
}
_CHECK = """
import sys, json, kubernetes_validate
wrong = []
for name, each in json.load(sys.stdin):
    for version in sys.argv[1:]:
        try:
            kubernetes_validate.validate(each, version, strict=True)
        except Exception as e:
            wrong.append(f"{name} {each['kind']} {version}: {e}")
print(json.dumps(wrong))
"""
_FIELDS = """
import json, sys, kubernetes_validate
from pathlib import Path
folder = Path(kubernetes_validate.__file__).with_name("kubernetes-json-schema") / f"v{sys.argv[1]}-local"
named = {name: json.loads((folder / f"{name}.json").read_text()) for name in sys.argv[2:]}
print(json.dumps({name: sorted(each["properties"]) for name, each in named.items()}))
"""
BUILD_S = 900.0  # helm takes 96 s on two idle cores


TOLD: list[str] = []  # printed at the end of the run, by the conftest of tests/chart


def told(what: str) -> None:
    TOLD.append(what)


def ran(*command: str | Path, text: str = "", environ: dict[str, str] | None = None, timeout: float = 120.0):
    return subprocess.run(
        [str(each) for each in command],
        input=text,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        env={**os.environ, **(environ or {})},  # noqa: TID251  handed on to a child
    )


def _needs_go(what: str) -> None:
    if not shutil.which("go"):
        pytest.skip(f"{what} is neither on PATH nor cached, and there is no Go to get it")


@cache
def helm() -> str:
    """The path of helm."""
    found = shutil.which("helm") or shutil.which(str(CACHE / "bin/helm"))
    if not found:
        _needs_go("helm")
        told("helm was built from its Go module")
        made = ran(
            "go", "install", HELM, environ={"GOBIN": str(CACHE / "bin"), "GOMAXPROCS": "1"}, timeout=BUILD_S
        )
        assert made.returncode == 0, made.stderr
        found = str(CACHE / "bin/helm")
    told(f"{found}: {ran(found, 'version', '--template', '{{.Version}}').stdout}")
    return found


@cache
def promtool() -> str:
    """The path of promtool."""
    found = shutil.which("promtool") or shutil.which(str(CACHE / "bin/promtool"))
    if not found:
        pytest.skip(f"promtool is neither on PATH nor in {CACHE}/bin: install Prometheus")
    told(f"{found}: {ran(found, '--version').stdout.partition(' (')[0]}")
    return found


@cache
def python() -> Path:
    """The Python of the environment with kubernetes-validate and checkov."""
    path = CACHE / "venv/bin/python"
    if not path.exists() or not (path.parent / "checkov").exists():
        told("kubernetes-validate and checkov were installed")
        assert ran(sys.executable, "-m", "venv", CACHE / "venv").returncode == 0
        made = ran(path, "-m", "pip", "install", "--quiet", *PYTHON_TOOLS, timeout=BUILD_S)
        if made.returncode:
            shutil.rmtree(CACHE / "venv")
            pytest.skip(f"kubernetes-validate and checkov cannot be installed: {made.stderr[-300:]}")
    asked = "from importlib.metadata import version as v; print(*(f'{n} {v(n)}' for n in ('kubernetes-validate', 'checkov')))"
    told(f"{path}: {ran(path, '-c', asked).stdout.strip()}")
    return path


def misfits(found: list[tuple[str, dict]]) -> list[str]:
    """The errors of these named objects by the strict schemas of their kinds, in all tested versions of Kubernetes."""
    done = ran(python(), "-c", _CHECK, *VERSIONS, text=json.dumps(found))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def fields(*kinds: str) -> dict[str, list[str]]:
    """The names of the fields of these kinds, in the newest Kubernetes."""
    done = ran(python(), "-c", _FIELDS, NEWEST, *kinds)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@cache
def crds() -> list[dict]:
    """The custom resources' definitions."""
    found = []
    for module, files in CRDS.items():
        folder = CACHE / "crds" / module.replace("/", "+")
        if not all((folder / Path(file).name).exists() for file in files):
            _needs_go(module)
            folder.mkdir(parents=True, exist_ok=True)
            got = ran("go", "mod", "download", "-json", module, timeout=BUILD_S)
            assert got.returncode == 0, got.stdout + got.stderr
            for file in files:
                shutil.copy(Path(json.loads(got.stdout)["Dir"]) / file, folder / Path(file).name)
        told(f"CRDs of {module}")
        found += [YAML(typ="safe").load((folder / Path(file).name).read_text()) for file in files]
    return found


def template(*arguments: str | Path, chart: Path = CHART):
    """The output of `helm template`, and how it ended."""
    common = ("--namespace", "shop", "--kube-version", NEWEST)
    return ran(helm(), "template", "shop", chart, *common, *arguments)


def objects(text: str) -> list[dict]:
    return [each for each in YAML(typ="safe").load_all(text) if each]


def rendered(*arguments: str | Path) -> list[dict]:
    """The objects that the chart renders from valid values."""
    done = template(*arguments)
    assert done.returncode == 0, done.stderr
    return objects(done.stdout)


def pods(found: list[dict]) -> list[dict]:
    """The specifications of pods."""
    specs = [
        each["spec"] if each["kind"] == "Pod" else each.get("spec", {}).get("template", {}).get("spec")
        for each in found
    ]
    return [each for each in specs if each]
