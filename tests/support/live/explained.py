"""What `cacheupdater explain KEY` says of a running updater, and other commands beside it.

Tests give the `Updater` that they have started. Each command runs in this process: an interpreter's start for each question
would take most of the time. `told` waits until a trouble is told in all three places where people look.
"""

from __future__ import annotations

import io
import json
from contextlib import redirect_stderr, redirect_stdout

from cacheupdater.cli import main
from live.updater_process import eventually

WITHIN_S = 60.0  # two cold starts on a busy machine


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


def tells(updater, key, event):
    """Whether `explain`, the log and the gauge `troubles` all tell of this trouble."""
    return (
        f": {event}: " in because(updater, key)
        and any(line.startswith(event) for line in updater.messages)
        and updater.metric("troubles", event=event) >= 1
    )


def told(updater, key, event, within=WITHIN_S):
    eventually(lambda: tells(updater, key, event), within, every=0.05)
