"""The promises of our workflows to users of a release, as rules that report what is missing.

Each rule reads the parsed files of `.github/workflows` and yields a sentence for each fault. Tests call the rules with the
real files and with files that lack one step.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from ruamel.yaml import YAML

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / ".github/workflows"
PINS = json.loads((ROOT / ".github/pins.json").read_text())
COMMIT = re.compile(r"[0-9a-f]{40}")
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
ISSUER = "--certificate-oidc-issuer https://token.actions.githubusercontent.com"


def read(text):
    return YAML(typ="safe").load(text)


def workflows():
    """The parsed workflows, by the name of the file."""
    return {each.name: read(each.read_text()) for each in sorted(FOLDER.glob("*.yml"))}


def used(workflow):
    """Every `uses`, of jobs and of steps."""
    for job in workflow["jobs"].values():
        yield from (each["uses"] for each in (job, *job.get("steps", ())) if "uses" in each)


def unpinned_actions(workflow, pins):
    for each in used(workflow):
        name, _, at = each.partition("@")
        if name.startswith("./"):
            continue
        pin = pins["actions"].get("/".join(name.split("/")[:2]))
        if pin is None:
            yield f"{name} is not in pins.json"
        elif at != pin["commit"] or not COMMIT.fullmatch(at):
            yield f"{name}@{at} is not the commit of pins.json: run .github/pins.py fill"


def unpinned_images(workflow):
    """Unpinned images of jobs in containers, and of their services."""
    for name, job in workflow["jobs"].items():
        found = [job.get("container"), *job.get("services", {}).values()]
        for each in filter(None, found):
            image = each if isinstance(each, str) else each["image"]
            if not DIGEST.search(image):
                yield f"{name}: the image {image} has no digest"


def unpinned_bases(dockerfile, pins):
    bases = dict(re.findall(r"^ARG (\w+)=(\S+)$", dockerfile, re.MULTILINE))
    for each in re.findall(r"^FROM (?:--\S+ )?(\S+)", dockerfile, re.MULTILINE):
        base = bases.get(each.strip("${}"), each)
        name, _, digest = base.partition("@")
        repository, _, version = name.rpartition(":")
        pin = pins["images"].get(repository)
        if pin != {"version": version, "digest": digest} or not DIGEST.fullmatch(digest):
            yield f"the base {base} is not that of pins.json: run .github/pins.py fill"


# --- a release ------------------------------------------------------------------------------------------


def _steps(job, action):
    return [each for each in job["steps"] if each.get("uses", "").startswith(f"{action}@")]


def _runs(job, pattern):
    return [each for each in job["steps"] if re.search(pattern, each.get("run", ""))]


def _attested(job, name, **said):
    """The rules for an attestation with these inputs."""
    found = [each.get("with", {}) for each in _steps(job, "actions/attest")]
    if not any(all(value in str(each.get(key, "")) for key, value in said.items()) for each in found):
        yield f"{name} is not attested ({', '.join(said) or 'at all'})"
    for right in ("id-token", "attestations"):
        if job.get("permissions", {}).get(right) != "write":
            yield f"{name} cannot be attested without {right}: write"


def _signed(job, name, subject):
    signs = _runs(job, rf'cosign sign --yes .*"{re.escape(subject)}@\$DIGEST"')
    if not signs or not _steps(job, "sigstore/cosign-installer"):
        yield f"{name} is not signed"
    if any("--key" in each["run"] for each in signs):
        yield f"{name} is signed with a key: keyless is what we promise"
    verifies = [each["run"] for each in _runs(job, r"cosign verify ")]
    if not any(ISSUER in each and "--certificate-identity " in each and subject in each for each in verifies):
        yield f"{name} is not verified after it was signed"
    if any(each.get("continue-on-error") for each in job["steps"]):
        yield f"{name}: a step may fail unnoticed"


def release_lacks(workflow):
    """The promises that a release does not keep."""
    jobs = workflow["jobs"]
    package, chart = jobs["package"], jobs["chart"]
    yield from _attested(package, "the package", **{"subject-path": "dist/*"})
    for each in _steps(package, "pypa/gh-action-pypi-publish") or [{"with": {"password": "none published"}}]:
        if each["with"].get("attestations") is not True or {"password", "user"} & set(each["with"]):
            yield "the package is not published by trusted publishing with attestations"
    if package.get("environment", {}).get("name") != "pypi":
        yield "the package is published outside of the environment that PyPI trusts"
    yield from _attested(
        jobs["build-image"], "the bill of materials", **{"sbom-path": "sbom-", "subject-digest": "push"}
    )
    platforms = {each["platform"] for each in jobs["build-image"]["strategy"]["matrix"]["include"]}
    if platforms != {"linux/amd64", "linux/arm64"}:
        yield f"the image is built for {sorted(platforms)}"
    yield from _attested(jobs["image"], "the image", **{"subject-name": "IMAGE", "push-to-registry": "True"})
    yield from _signed(jobs["image"], "the image", "$IMAGE")
    yield from _attested(chart, "the chart", **{"subject-name": "CHARTS", "push-to-registry": "True"})
    yield from _signed(chart, "the chart", "$CHARTS/$CHART")
    if not _runs(chart, r'helm push .* "oci://\$CHARTS"'):
        yield "the chart is not pushed as an OCI artifact"
    for name in ("package", "build-image"):
        if "test" not in jobs[name]["needs"]:
            yield f"{name} does not wait for the tests"


def careless(workflow):
    """Rights and secrets that a job does not need."""
    if workflow.get("permissions") != {"contents": "read"}:
        yield "rights are given to all jobs at once"
    if re.search(r"secrets\.", json.dumps(workflow, default=str)):
        yield "a secret is used: nothing of ours needs one"
    for name, job in workflow["jobs"].items():
        for each in _steps(job, "actions/checkout") if "steps" in job else ():
            if each.get("with", {}).get("persist-credentials") is not False:
                yield f"{name}: the checkout leaves its token behind"
        if "uses" not in job and "timeout-minutes" not in job:
            yield f"{name} has no time limit"
