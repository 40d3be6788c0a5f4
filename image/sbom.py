"""What is in an image, as CycloneDX 1.6: the Python packages with their licences, and Debian's packages below them.

    python image/sbom.py --root FOLDER --version 1.2.3      an image whose files lie in a folder
    docker run --rm --entrypoint python IMAGE - --version 1.2.3 < image/sbom.py      from within

It reads what is installed and not what was asked for. The same image gives the same document: no time, no number drawn.
Standard library alone, because the image has nothing else to offer.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import uuid
from importlib import metadata
from pathlib import Path
from urllib.parse import quote

NAME = "cacheupdater"
DEBIAN = "var/lib/dpkg/status"


def python_packages(root: Path) -> list[dict[str, object]]:
    """Those of the image's environment, by name."""
    folders = [str(each) for each in root.glob("opt/cacheupdater/lib/python3.*/site-packages")]
    found = (_python(each) for each in metadata.distributions(path=folders))
    return sorted(found, key=lambda each: str(each["bom-ref"]))


def _python(package: metadata.Distribution) -> dict[str, object]:
    name = re.sub(r"[-_.]+", "-", package.metadata["Name"]).lower()
    purl = f"pkg:pypi/{name}@{quote(package.version)}"
    licence = package.metadata.get("License-Expression") or package.metadata.get("License") or ""
    about: dict[str, object] = {"type": "library", "bom-ref": purl, "name": name, "version": package.version}
    about["purl"] = purl
    if licence and "\n" not in licence:
        about["licenses"] = [{"license": {"name": licence}}]
    return about


def debian_packages(root: Path) -> list[dict[str, object]]:
    """Of the base, if it is Debian's."""
    status = root / DEBIAN
    paragraphs = status.read_text(encoding="utf-8").split("\n\n") if status.exists() else []
    found = []
    for each in paragraphs:
        fields = dict(re.findall(r"^([A-Za-z-]+): (.*)$", each, re.MULTILINE))
        if not fields.get("Status", "").endswith(" installed"):
            continue
        name, version = fields["Package"], fields["Version"]
        purl = f"pkg:deb/debian/{name}@{quote(version)}?arch={fields['Architecture']}"
        found.append({"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl})
    return sorted(found, key=lambda each: str(each["bom-ref"]))


def dependencies(root: Path, known: dict[str, str]) -> list[dict[str, object]]:
    """Which package needs which others that are here; `known` has each name's reference."""
    found = []
    for folder in root.glob("opt/cacheupdater/lib/python3.*/site-packages"):
        for package in metadata.distributions(path=[str(folder)]):
            name = re.sub(r"[-_.]+", "-", package.metadata["Name"]).lower()
            needs = (re.match(r"[\w.-]+", each) for each in package.requires or ())
            names = {re.sub(r"[-_.]+", "-", each.group()).lower() for each in needs if each}
            refs = sorted(known[each] for each in names - {name} if each in known)
            found.append({"ref": known[name], "dependsOn": refs})
    return sorted(found, key=lambda each: str(each["ref"]))


def document(root: Path, version: str) -> dict[str, object]:
    """The whole of it."""
    python = python_packages(root)
    parts = [*python, *debian_packages(root)]
    image = {"type": "container", "bom-ref": f"image:{NAME}", "name": NAME, "version": version}
    number = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps([version, parts]))
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{number}",
        "version": 1,
        "metadata": {"component": image},
        "components": parts,
        "dependencies": dependencies(root, {str(each["name"]): str(each["bom-ref"]) for each in python}),
    }


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", type=Path, default=Path("/"))
    parser.add_argument("--version", required=True)
    args = parser.parse_args()
    json.dump(document(args.root, args.version), sys.stdout, indent=1)
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
