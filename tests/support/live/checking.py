"""`cacheupdater check --connect`, as an operator runs it, in the test's own process."""

from __future__ import annotations

import io
from contextlib import redirect_stdout

from cacheupdater.cli import main


def checked(file):
    """The exit code, and what was printed."""
    said = io.StringIO()
    with redirect_stdout(said):
        code = main(["check", "--connect", "-c", str(file)])
    return code, said.getvalue()
