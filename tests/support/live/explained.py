"""What `cacheupdater explain KEY` says of a running updater, and other commands beside it.

Tests give the `Updater` that they have started. Each command runs in this process: an interpreter's start for each question
would take most of the time.
"""

from __future__ import annotations

import io
import json
from contextlib import redirect_stderr, redirect_stdout

from cacheupdater.cli import main


def command(updater, *arguments):
    """(code, standard output, standard error) of a command with the updater's configuration."""
    said, complaints = io.StringIO(), io.StringIO()
    with redirect_stdout(said), redirect_stderr(complaints):
        code = main([*arguments, "-c", str(updater.file)])
    return code, said.getvalue(), complaints.getvalue()


def explained(updater, key, *arguments):
    """The whole answer."""
    code, said, complaints = command(updater, "explain", key, "-o", "json", *arguments)
    assert code == 0, complaints
    return json.loads(said)


def because(updater, key, *arguments):
    """The reasons, in one line."""
    return " ".join(explained(updater, key, *arguments)["because"])
