"""For tests of the guard: each call of a function of ours raises in turn, and the application must never notice."""

from __future__ import annotations

import asyncio
import sys
from contextlib import contextmanager, nullcontext
from pathlib import Path
from unittest import mock

import cacheupdater_client
from cacheupdater_client import calls as calls_of_clients
from cacheupdater_client.guard import faults
from cacheupdater_client.sender import Sender

OURS = Path(cacheupdater_client.__file__).parent
# the fenced calls of `invalidate`: they do not observe, they work, and may say that they failed
WORKS = {str(OURS / "calls.py"), str(OURS / "protocol" / "fence.py")}
# What stands in the place of redis-py's own methods, and the guards: an `except` encloses all that they do for themselves.
DOORS = {
    "get", "hgetall", "execute_command", "execute", "reset", "pipeline", "invalidate", "_invalidate", "_fenced",
    "seen", "_observe", "executed", "returned", "interrupted", "came", "length_of", "taken", "done", "failed",
    "hints", "notes", "forget",
    "_changed", "fault", "__setattr__",
}  # fmt: skip
# The same of the cluster clients alone. `set_apart` splits a mapping as redis-py does; the last two only use a context variable.
DOORS_OF_CLUSTERS = {
    "_invalidate_apart", "exists", "delete", "unlink", "unlinked", "mset_nonatomic", "method",
    "set_apart", "set_apart.<locals>.<genexpr>", "in_pipeline", "pipeline_runs",
}  # fmt: skip


class Planted(Exception):
    pass


class Calls:
    """Lets the nth call of a function of ours raise; `fell` says whether there was one."""

    def __init__(self, nth, doors):
        self.left, self.fell = nth, ""
        self._doors = doors

    def __call__(self, frame, event, _):
        code = frame.f_code
        if event == "call" and self._observes(code):
            if not self.left:
                self.left, self.fell = -1, code.co_name
                raise Planted(code.co_name)
            self.left -= 1

    def _observes(self, code):
        file, names = code.co_filename, {code.co_name, code.co_qualname}
        return file.startswith(str(OURS)) and file not in WORKS and self._doors.isdisjoint(names)


@contextmanager
def instrumented(sender):
    """Within, the hints of redis-py's own clients go to this sender."""

    def hints_for(encoder, *_):
        return sender.target("memory://nobody", ()).buffer(encoder)

    with mock.patch.object(calls_of_clients, "hints_for", hints_for):
        cacheupdater_client.instrument()
        try:
            yield
        finally:
            cacheupdater_client.uninstrument()


def play(client, program, *pipelines):
    """The replies to these commands, and to those of each pipeline: (commands, whether it is a transaction)."""
    replies = [getattr(client, name)(*args) for name, *args in program if hasattr(client, name)]
    for commands, transaction in pipelines:
        pipe = client.pipeline(transaction=transaction)
        for name, *args in commands:
            getattr(pipe, name)(*args)
        replies.append(pipe.execute())
        pipe.reset()
    return replies


async def play_later(client, program, *pipelines):
    """The same with an asyncio client. Some clients await a command of a pipeline, too."""
    replies = [await getattr(client, name)(*args) for name, *args in program if hasattr(client, name)]
    for commands, transaction in pipelines:
        pipe = client.pipeline(transaction=transaction)
        for name, *args in commands:
            queued = getattr(pipe, name)(*args)
            if asyncio.iscoroutine(queued):
                await queued
        replies.append(await pipe.execute())
        await pipe.reset()
    return replies


def all_that_fell(ready, *, ours, doors=DOORS):
    """Plays a program once as it is, and once for each call of a function of ours, which then raises.

    `ready(sender)` returns the program, which returns its replies. These must always be the same, and each fault counted.
    Returns the names of the functions that raised. If the client is redis-py's own, it is instrumented.
    """
    expected, fell, nth = None, set(), -1
    while True:
        sender = Sender()
        run, calls, before = ready(sender), Calls(nth, doors), faults.count
        tracer = sys.gettrace()
        with nullcontext() if ours else instrumented(sender):
            sys.settrace(calls)
            try:
                replies = run()
            finally:
                sys.settrace(tracer)
                sender.close(0.1)
        expected = expected or replies
        assert replies == expected, calls.fell
        if nth >= 0 and not calls.fell:
            return fell
        assert (faults.count > before) == bool(calls.fell), calls.fell
        fell.add(calls.fell)
        nth += 1
