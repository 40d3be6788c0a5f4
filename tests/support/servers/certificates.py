"""Certificates of a test's own, made by openssl: one authority and the certificates that it signs, valid for a day."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


class Authority:
    """An authority. `ca` is its certificate. All files are PEM, in `folder`."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        if shutil.which("openssl") is None:
            pytest.skip("no openssl to make certificates with")
        self.folder = folder
        self.ca = folder / f"{name}.pem"
        self._key = folder / f"{name}.key"
        made = ("-keyout", str(self._key), "-out", str(self.ca), "-days", "1")
        _openssl("req", "-x509", *NEW_KEY, "-subj", f"/CN={name}", *made)

    def vouch(self, name):
        """A certificate and its key, for a server at 127.0.0.1 or for a client called `name`."""
        certificate, key, asked = (self.folder / f"{name}.{kind}" for kind in ("pem", "key", "csr"))
        extra = self.folder / "extensions"
        extra.write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
        _openssl("req", *NEW_KEY, "-subj", f"/CN={name}", "-keyout", str(key), "-out", str(asked))
        signer = ("-CA", str(self.ca), "-CAkey", str(self._key), "-CAcreateserial", "-extfile", str(extra))
        _openssl("x509", "-req", "-in", str(asked), *signer, "-days", "1", "-out", str(certificate))
        return certificate, key


def _openssl(*arguments):
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)
