"""Processes of the simulated world: all tasks of one stop together (SIGSTOP) and die together (kill -9).

A task of a process runs through a gate. While the process is stopped, no step of any of its tasks runs, whatever timer or
answer wakes it. Exceptions thrown meanwhile are raised when it continues, and by then its clock has moved. The tasks of a dead
process are cancelled, and every port refuses it, so that its last steps change nothing outside.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Coroutine

CURRENT = contextvars.ContextVar("CURRENT", default=None)


class Process:
    """A name, and a gate for its tasks."""

    def __init__(self, name):
        self.name = name
        self.dead = False
        self.stopped = False
        self._waiting = []
        self._tasks = []

    def start(self, coroutine):
        """Runs a coroutine as a task of the process."""
        context = contextvars.copy_context()
        context.run(CURRENT.set, self)
        task = context.run(asyncio.get_running_loop().create_task, coroutine)
        self._tasks.append(task)
        return task

    def stop(self):
        self.stopped = True

    def resume(self):
        self.stopped = False
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if not each.done():
                each.set_result(None)

    def kill(self):
        self.dead = True
        self.resume()
        for task in self._tasks:
            task.cancel()

    def check(self):
        """Raises in a dead process, so that it has no effect."""
        if self.dead:
            raise asyncio.CancelledError

    def until_resumed(self):
        """The future that a gate yields to its task while the process is stopped."""
        future = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        future._asyncio_future_blocking = True
        return future


class _Gate(Coroutine):
    """A coroutine whose steps wait while its process is stopped."""

    __slots__ = ("_inner", "_process", "_thrown")

    def __init__(self, inner, process):
        self._inner = inner
        self._process = process
        self._thrown = None

    def send(self, value):
        if self._process.stopped:
            return self._process.until_resumed()
        if self._thrown is not None:
            thrown, self._thrown = self._thrown, None
            return self._inner.throw(thrown)
        return self._inner.send(value)

    def throw(self, *error):
        if self._process.stopped:
            self._thrown = error[-1] if isinstance(error[-1], BaseException) else error[0]
            return self._process.until_resumed()
        return self._inner.throw(*error)

    def close(self):
        self._inner.close()

    def __await__(self):
        return self

    def __iter__(self):
        return self


def task_factory(loop, coroutine, **options):
    """Gives tasks that are made by a task of a process to the same process."""
    process = CURRENT.get()
    return asyncio.Task(coroutine if process is None else _Gate(coroutine, process), loop=loop, **options)
