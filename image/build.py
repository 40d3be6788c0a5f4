"""Builds the image here, without a Docker engine, and leaves it where `make image` tries it: build/image.

The base is Debian by debootstrap (made once, kept in the user's cache folder), so its Python is another than the
published image's; everything else is the Dockerfile as it is. Left in build/image: `built.json` with the image's own
configuration and where its files lie, and `sbom.cdx.json`. Needs root and a Debian; says what is missing.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path

from tools import MissingError, Tools

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "build" / "image"
SUITE, MIRROR = "bookworm", "http://deb.debian.org/debian"
BASE, IMAGE, BOX = f"localhost/base:{SUITE}", "localhost/cacheupdater:built", "cacheupdater-built"
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
PYTHON = "python3-minimal,python3-venv,ca-certificates"


def base(tools: Tools) -> None:
    """The image that the Dockerfile begins from, unless there is one."""
    if BASE in tools.buildah("images", "--format", "{{.Name}}:{{.Tag}}").split():
        return
    print(f"making a base by debootstrap {SUITE} (once) ...", flush=True)
    box = tools.buildah("from", "--pull-never", "scratch").strip()
    where = tools.buildah("mount", box).strip()
    tools.debootstrap("--variant=minbase", f"--include={PYTHON}", SUITE, where, MIRROR)
    subprocess.run(["sh", "-c", f"rm -rf {where}/var/cache/apt/* {where}/var/lib/apt/lists/*"], check=True)
    tools.buildah("commit", "--quiet", "--rm", box, BASE)


def build(tools: Tools, version: str) -> float:
    """Seconds that it took."""
    began = time.monotonic()
    said = [f"BASE_IMAGE={BASE}", f"VERSION={version}", f"REVISION={_revision()}"]
    if CERTIFICATES.exists():  # what this machine trusts, as behind a proxy that opens TLS
        said.append(f"PIP_CERT={CERTIFICATES}")
    arguments = [word for each in said for word in ("--build-arg", each)]
    volume = ["--volume", f"{CERTIFICATES}:{CERTIFICATES}:ro"] if CERTIFICATES.exists() else []
    how = ["--isolation=chroot", "--pull-never", "--layers=false", "--quiet"]
    tools.buildah("bud", *how, *volume, *arguments, "--tag", IMAGE, "--file", ROOT / "Dockerfile", ROOT)
    return time.monotonic() - began


def unpacked(tools: Tools) -> tuple[Path, dict[str, object]]:
    """Where the image's files lie, and what it says of itself."""
    if BOX in tools.buildah("containers", "--format", "{{.ContainerName}}").split():
        tools.buildah("rm", BOX)
    tools.buildah("rmi", "--prune", "--force")  # builds before this one, half a gigabyte each
    tools.buildah("from", "--pull-never", "--name", BOX, IMAGE)
    where = Path(tools.buildah("mount", BOX).strip())
    about = json.loads(tools.buildah("inspect", "--type", "image", IMAGE))["OCIv1"]
    return where, about["config"]


def main() -> int:
    version = re.findall(r'__version__ = "(.+)"', (ROOT / "cacheupdater/__init__.py").read_text())[0]
    try:
        tools = Tools()
        base(tools)
        took = build(tools, version)
    except MissingError as e:
        print(f"the image is not built here; missing: {e}", file=sys.stderr)
        return 1
    where, config = unpacked(tools)
    OUT.mkdir(parents=True, exist_ok=True)
    sizes = {"image": _megabytes(where), "packages": _megabytes(where / "opt/cacheupdater")}
    sbom = [sys.executable, ROOT / "image/sbom.py", "--root", where, "--version", version]
    (OUT / "sbom.cdx.json").write_bytes(subprocess.run(sbom, check=True, capture_output=True).stdout)
    found = {"root": str(where), "config": config, "sizes": sizes}
    (OUT / "built.json").write_text(json.dumps(found, indent=1) + "\n")
    print(
        f"built {version} in {took:.0f} s: {sizes['image']:.0f} MB, of it {sizes['packages']:.0f} MB packages"
    )
    return 0


def _megabytes(folder: Path) -> float:
    said = subprocess.run(["du", "-sxb", folder], check=True, capture_output=True, text=True).stdout
    return int(said.split()[0]) / 1e6


def _revision() -> str:
    said = subprocess.run(
        ["git", "-C", ROOT, "rev-parse", "HEAD"], check=False, capture_output=True, text=True
    )
    return said.stdout.strip() or "unknown"


if __name__ == "__main__":
    sys.exit(main())
