"""Statements that fail in the database: at random, or exactly those that the test names.

A failing statement is replaced by one that PostgreSQL refuses. So the error is the database's own, and the transaction is
aborted as by any other error.
"""

from __future__ import annotations

import random
from contextlib import contextmanager

from sqlalchemy import event

BROKEN = "SELECT 1/0"
RATE = 0.02  # of all statements: about one in three steps of a program


class Faults:
    """Which statements fail, from now on."""

    def __init__(self):
        self.fails = lambda _statement: False
        self.failed = 0

    def at_random(self, seed):
        luck = random.Random(seed)
        self.fails = lambda _statement: luck.random() < RATE

    def never(self):
        self.fails = lambda _statement: False

    def only(self, fails):
        """The first statement for which this holds."""
        before = self.failed
        self.fails = lambda statement: self.failed == before and fails(statement)

    def _hits(self, statement):
        # a connection that cannot roll back is lost, which is another story
        hit = not statement.startswith("ROLLBACK") and self.fails(statement)
        self.failed += hit
        return hit

    def listen(self, engine):
        """Of SQLAlchemy."""

        def before(_connection, _cursor, statement, parameters, _context, many):
            return (BROKEN, [()] if many else ()) if self._hits(statement) else (statement, parameters)

        event.listen(engine, "before_cursor_execute", before, retval=True)

    @contextmanager
    def of_django(self, connection):
        def wrapper(execute, sql, params, many, context):
            return (
                execute(BROKEN, None, False, context)
                if self._hits(sql)
                else execute(sql, params, many, context)
            )

        with connection.execute_wrapper(wrapper):
            yield
