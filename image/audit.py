"""Asks whether what the locks name has known holes: `make audit`, by pip-audit, of PyPI and then of OSV.

Both have to be asked over the network. Where neither answers, as behind an index of one's own or offline, nothing is known:
that is said, lock by lock, and ends with 3, so that nobody takes silence for an all-clear. A hole ends with 1.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCKS = ("requirements", "build", "tools", "dev")
SERVICES = ("pypi", "osv")
WITHIN_S = 300  # some hundred questions
HOLE, UNKNOWN = 1, 3


def asked(lock: Path, service: str) -> tuple[list[str], int, int]:
    """Holes that are known; how many packages were looked up, and how many were not."""
    command = [sys.executable, "-m", "pip_audit", "--vulnerability-service", service, "--format", "json"]
    command += ["--disable-pip", "--require-hashes", "--progress-spinner", "off", "--requirement", str(lock)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S)
        found = json.loads(done.stdout)["dependencies"]
    except (subprocess.TimeoutExpired, ValueError, KeyError):
        return [], 0, 0
    holes = [
        f"{each['name']} {each['version']}: {hole['id']}, mended in {', '.join(hole['fix_versions']) or 'nothing yet'}"
        for each in found
        for hole in each.get("vulns", ())
    ]
    unknown = sum("skip_reason" in each for each in found)
    return holes, len(found) - unknown, unknown


def main() -> int:
    worst = 0
    for name in LOCKS:
        lock = ROOT / "image" / f"{name}.lock"
        for service in SERVICES:
            holes, known, unknown = asked(lock, service)
            if known:
                break
        if not known:
            print(f"image/{name}.lock: nothing is known, for neither PyPI nor OSV answered")
            worst = worst or UNKNOWN
            continue
        print(
            f"image/{name}.lock: {service} knows {known} packages, of {unknown} nothing; holes: {len(holes)}"
        )
        for each in holes:
            print(f"  {each}")
        if holes:
            worst = HOLE
        elif unknown:
            worst = worst or UNKNOWN
    return worst


if __name__ == "__main__":
    sys.exit(main())
