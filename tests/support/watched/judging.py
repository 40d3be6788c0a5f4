"""Runs a random program and compares after each step: the missing keys are those of the rows that the step has committed.

WATCH_SEED=7 chooses one seed, to see a failure again. WATCH_SEED=0-11 chooses a block.
"""

from __future__ import annotations

import os

STEPS = 60  # of a program


def chosen(seeds):
    """The seeds to run."""
    said = os.environ.get("WATCH_SEED")  # noqa: TID251  the test run's own setting
    if not said:
        return seeds
    first, _, last = said.partition("-")
    return range(int(first), int(last or first) + 1)


class Judge:
    """Compares from outside: PostgreSQL's record of committed changes with the keys that Redis lacks."""

    def __init__(self, audit, shelf, watched):
        self._audit, self._shelf, self._watched = audit, shelf, watched

    def follow(self, seed, program, test, steps=STEPS):
        """Runs one program of a test file."""
        self._audit.clear()
        self._shelf.gone()
        program.seed_rows()
        self._unseen = self._watched.counts()["unseen"]
        for _ in range(steps):
            self._compare(seed, program, test)
            program.step()
        program.end()
        self._compare(seed, program, test)

    def _compare(self, seed, program, test):
        expected, gone = self._audit.keys(), self._shelf.gone()
        said = (
            f"seed {seed}, after {' '.join(program.done)}; to replay: "
            f"WATCH_SEED={seed} .venv/bin/pytest -n 0 {test}"
        )
        assert gone <= expected, f"{gone - expected} {said}"
        unseen = self._watched.counts()["unseen"]
        assert gone == expected or unseen > self._unseen, f"{expected - gone} {said}"
        if not program.busy():  # what was unseen in a transaction is missing at its commit
            self._unseen = unseen
