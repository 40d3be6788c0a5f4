"""Reads a lock of `image/`: packages, versions, hashes, and the systems that install them."""

from __future__ import annotations

import re
from typing import NamedTuple

from packaging.markers import Marker, default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

HASH = re.compile(r"--hash=(\w+):([0-9a-f]+)")


class Entry(NamedTuple):
    name: str
    version: str
    marker: Marker | None
    hashes: tuple[tuple[str, str], ...]
    asked_by: frozenset[str]


def entries(path):
    """All entries in their order. A name comes twice if versions differ by Python."""
    found = []
    for block in re.split(r"\n(?=[\w])", path.read_text()):
        if re.match(r"[\w.-]+==", block):
            requirement = Requirement(block.partition("\\")[0].strip())
            (version,) = requirement.specifier
            asked = re.findall(r"^\s+#\s+(?:via )?(\S.*)$", block, re.MULTILINE)
            found.append(
                Entry(
                    canonicalize_name(requirement.name),
                    version.version,
                    requirement.marker,
                    tuple(HASH.findall(block)),
                    frozenset(each for each in asked if each != "via"),
                )
            )
    return found


def wanted(found, root):
    """The entries that the image with this interpreter installs, by name."""
    (lib,) = root.glob("opt/cacheupdater/lib/python3.*")
    version = lib.name.removeprefix("python")
    here = {**default_environment(), "python_version": version, "python_full_version": f"{version}.0"}
    return {each.name: each for each in found if each.marker is None or each.marker.evaluate(here)}
