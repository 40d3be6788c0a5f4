"""The versions of others that our workflows and our image run, pinned in one file: pins.json.

    python .github/pins.py fill      writes what pins.json says into the workflows and the Dockerfile
    python .github/pins.py renew     asks GitHub and the registry for the newest of the same kind, then fills

`renew` runs weekly (workflows/pins.yml), which proposes the change; nothing moves by itself. An action stays within its
major version, an image within its minor one and its flavour. A pin is a commit or a digest; the version beside it is for
people and for the next `renew`. tests/image/test_workflows.py fails where something is not pinned.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from http.client import HTTPResponse

ROOT = Path(__file__).resolve().parent.parent
PINS = ROOT / ".github/pins.json"
USES = re.compile(r"(uses: )([\w.-]+/[\w.-]+)((?:/[\w./-]+)?)@[^\s#]+([ \t]*#[^\n]*)?")
BASE = re.compile(r"^(ARG BASE_IMAGE=)([\w./-]+):[^\s@]+@[^\s]+$", re.MULTILINE)
REGISTRY, TOKEN = "https://registry-1.docker.io", "https://auth.docker.io/token?service=registry.docker.io"
INDEX = "application/vnd.oci.image.index.v1+json, application/vnd.docker.distribution.manifest.list.v2+json"
PAGES_MAX = 20  # of a registry's tags
TIMEOUT_S = 30


def filled(text: str, pins: dict) -> str:
    """A workflow or Dockerfile with every known pin as pins.json has it."""

    def action(found: re.Match) -> str:
        uses, name, folder, _ = found.groups()
        pin = pins["actions"].get(name)
        return f"{uses}{name}{folder}@{pin['commit']} # {pin['version']}" if pin else found.group()

    def image(found: re.Match) -> str:
        argument, name = found.groups()
        pin = pins["images"].get(name)
        return f"{argument}{name}:{pin['version']}@{pin['digest']}" if pin else found.group()

    return BASE.sub(image, USES.sub(action, text))


def places(root: Path = ROOT) -> list[Path]:
    """Where pins stand."""
    return [*sorted((root / ".github/workflows").glob("*.yml")), root / "Dockerfile"]


def fill(pins: dict) -> None:
    for each in places():
        text = each.read_text()
        if (new := filled(text, pins)) != text:
            each.write_text(new)
            print(f"{each.relative_to(ROOT)} has changed")


def newest(versions: list[str], now: str, *, fixed: int) -> str:
    """The highest that has the same shape as `now` and the same first `fixed` numbers."""

    def numbers(text: str) -> list[int]:
        return [int(each) for each in re.findall(r"\d+", text)]

    shape = re.sub(r"\d+", "#", now)
    same = [each for each in versions if re.sub(r"\d+", "#", each) == shape]
    kept = [each for each in same if numbers(each)[:fixed] == numbers(now)[:fixed]]
    return max(kept, key=numbers, default=now)


def renew_action(name: str, pin: dict) -> None:
    said = subprocess.run(
        ["git", "ls-remote", "--tags", f"https://github.com/{name}"],
        check=True,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    ).stdout
    commits = {}
    for line in said.splitlines():
        commit, ref = line.split()
        tag = ref.removeprefix("refs/tags/")
        # of an annotated tag the second line, with ^{}, has the commit
        if tag.endswith("^{}") or tag not in commits:
            commits[tag.removesuffix("^{}")] = commit
    pin["version"] = newest(list(commits), pin["version"], fixed=1)
    pin["commit"] = commits[pin["version"]]


def renew_image(name: str, pin: dict) -> None:
    """Of Docker Hub. The digest is that of the index, which has every architecture."""
    repository = name.removeprefix("docker.io/")
    token = _json(f"{TOKEN}&scope=repository:{repository}:pull")["token"]
    told = {"Authorization": f"Bearer {token}", "Accept": INDEX}
    tags, page = [], f"{REGISTRY}/v2/{repository}/tags/list?n=1000"
    for _ in range(PAGES_MAX):
        with _asked(page, told) as answer:
            tags += json.load(answer)["tags"]
            more = re.search(r"<([^>]+)>", answer.headers.get("Link", ""))
        if not more:
            break
        page = REGISTRY + more[1].removeprefix(REGISTRY)
    pin["version"] = newest(tags, pin["version"], fixed=2)
    with _asked(f"{REGISTRY}/v2/{repository}/manifests/{pin['version']}", told) as answer:
        if answer.headers["Content-Type"] not in INDEX:
            raise SystemExit(f"{name}:{pin['version']} is of one architecture only")
        pin["digest"] = answer.headers["Docker-Content-Digest"]


def renew(pins: dict) -> None:
    for name, pin in pins["actions"].items():
        renew_action(name, pin)
    for name, pin in pins["images"].items():
        renew_image(name, pin)
    PINS.write_text(written(pins))


def written(pins: dict) -> str:
    """pins.json: a line for each, so that a change is a line."""
    kinds = []
    for kind, found in pins.items():
        lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(found[name])}" for name in sorted(found))
        kinds.append(f" {json.dumps(kind)}: {{\n{lines}\n }}")
    return "{\n" + ",\n".join(kinds) + "\n}\n"


def _asked(url: str, headers: dict[str, str]) -> HTTPResponse:
    return urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT_S)


def _json(url: str) -> dict:
    with _asked(url, {}) as answer:
        return json.load(answer)


def main() -> int:
    if sys.argv[1:] not in (["fill"], ["renew"]):
        print(__doc__, file=sys.stderr)
        return 2
    pins = json.loads(PINS.read_text())
    if sys.argv[1] == "renew":
        renew(pins)
    fill(pins)
    return 0


if __name__ == "__main__":
    sys.exit(main())
