"""Keys of a terminal are read one at a time, and the terminal is restored afterwards."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
import termios
import textwrap

import pytest

from cacheupdater.demo.keys import Keys

CHILD = textwrap.dedent("""
    import fcntl, signal, termios, time
    # a shell's background job, such as a CI's, ignores Ctrl-C and so would its children
    signal.signal(signal.SIGINT, signal.default_int_handler)
    from cacheupdater.demo.keys import Keys
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    try:
        with Keys() as keys:
            print("heard", keys.heard, flush=True)
            typed = ""
            while "q" not in typed:
                typed += keys.pressed()
                time.sleep(0.01)
            print("typed", typed, flush=True)
            if "+" in typed:
                raise SystemExit(3)
            while True:  # a signal that comes just before one long sleep would wait for its end
                time.sleep(0.01)
    except KeyboardInterrupt:
        raise SystemExit(130)
""")


@pytest.fixture
def terminal():
    """A process that listens on a terminal of its own, and our end of that terminal."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", CHILD]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, start_new_session=True) as process:
        yield process, ours
        process.kill()
    os.close(theirs)
    os.close(ours)


def said(ours, until):
    text = b""
    while until not in text:
        text += os.read(ours, 1000)
    return text.decode()


def line_by_line(ours):
    return bool(termios.tcgetattr(ours)[3] & termios.ICANON)


def test_without_a_terminal_nothing_is_read():
    stream = io.StringIO("+")
    with Keys(stream) as keys:
        assert not keys.heard
        assert keys.pressed() == ""
    assert stream.read() == "+"


def test_without_any_input_nothing_is_read():
    with Keys(None) as keys:
        assert not keys.heard


def test_a_terminal_that_is_not_ours_is_left_alone():
    ours, theirs = pty.openpty()
    with (
        os.fdopen(ours, "rb", buffering=0),
        os.fdopen(theirs, "rb", buffering=0) as stream,
        Keys(stream) as keys,
    ):
        assert not keys.heard
        assert line_by_line(theirs)


def test_keys_arrive_without_enter_and_an_error_leaves_the_terminal_as_it_was(terminal):
    process, ours = terminal
    said(ours, b"heard True")
    assert not line_by_line(ours)
    os.write(ours, b"+q")
    said(ours, b"typed +q")
    assert process.wait(60) == 3
    assert line_by_line(ours)


def test_ctrl_c_works_meanwhile_and_leaves_the_terminal_as_it_was(terminal):
    process, ours = terminal
    said(ours, b"heard True")
    os.write(ours, b"q")
    said(ours, b"typed q")
    os.write(ours, b"\x03")
    assert process.wait(60) == 130
    assert line_by_line(ours)
