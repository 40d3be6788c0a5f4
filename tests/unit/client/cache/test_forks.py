"""What a forked child must not inherit is begun anew there, as long as somebody has it."""

from __future__ import annotations

import gc

from cacheupdater_client.cache import forks


class Counter:
    begun = 0

    def begin(self):
        self.begun += 1


def test_whoever_lives_begins_anew_and_nobody_is_kept_alive():
    living, dead = Counter(), Counter()
    forks.enrol(living)
    forks.enrol(dead)
    before = len(forks._enrolled)
    del dead
    gc.collect()
    assert len(forks._enrolled) < before
    forks._begin_all()
    assert living.begun == 1
