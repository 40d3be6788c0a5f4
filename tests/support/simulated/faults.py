"""The faults: every kind by name, its rate in this schedule, and how often it has happened.

A schedule has only some of the kinds, each with a rate of its own ("swarm testing"). If everything fails all the time, no call
gets far enough to fail in an interesting way.
"""

from __future__ import annotations

from collections import Counter

AT_PORTS = {  # per call
    "redis_delay": 0.15,  # the call or its answer takes a long time
    "redis_error": 0.10,  # it fails, and has not happened
    "redis_cut": 0.10,  # it has happened, and the answer is an error
    "redis_late": 0.05,  # it happens after its caller has given up
    "redis_partial": 0.40,  # an exchange of two calls, of which the second never happens
    "redis_refuses": 0.10,  # an error reply to the whole call: memory, a replica, a data set that is loaded
    "redis_part_refused": 0.15,  # an error reply that does not say which of the call's keys is to blame
    "redis_key_failed": 0.20,  # one key's write is refused by the server
    "db_delay": 0.20,
    "db_error": 0.15,  # the connection is lost
    "db_timeout": 0.15,  # the statement's deadline passes
    "db_faulty": 0.15,  # the statement itself fails
    "db_raises": 0.15,  # a loader raises an error that no port may raise
    "db_slow": 0.10,  # the answer takes longer than a head may run
    "db_row_twice": 0.30,  # two rows where one is expected
    "db_row_of_nobody": 0.10,  # a row of a key that was not asked for
    "db_column_lost": 0.10,  # the result has other columns than the loader knows
    "db_columns_turned": 0.20,  # from now on columns have another order
    "db_poison": 1.00,  # one key makes each of its statements fail
    "db_slow_row": 1.00,  # or run into the deadline
    "queue_fetch_delay": 0.10,
    "queue_fetch_error": 0.10,
    "queue_commit_delay": 0.30,
    "queue_commit_error": 0.30,
    "queue_commit_cut": 0.30,  # committed, and the answer is an error
    "queue_duplicate": 0.10,  # a pack arrives twice
    "queue_garbage": 0.10,  # a message that is no pack
    "client_delay": 0.10,  # frames or acknowledgements take a long time
    "client_cut": 0.10,  # the connection is lost, with all frames under way
    "app_crash_between": 0.25,  # after the commit in the database, before Redis and the updater hear of it
}

AT_GROUPS = {  # likewise, where the queue is a group
    "group_slow_settle": 0.50,  # a member takes longer to give up its partitions than the others wait
    "queue_foreign": 0.30,  # a record of another producer: one key, in any partition
}

AT_FILES = {  # likewise, where learned state is kept
    "state_torn": 0.40,  # the disk has only a part of the save
    "state_full": 0.40,  # no room
    "state_unreadable": 1.00,
}

AT_FEEDS = {  # likewise, where updaters read a feed
    "feed_delay": 0.20,  # a batch or its confirmation takes a long time
    "feed_cut": 0.10,  # the connection is lost with a batch
    "feed_again": 0.15,  # a batch comes twice
    "feed_confirm_error": 0.30,
    "feed_confirm_cut": 0.30,  # confirmed, and the answer is an error
    "lookup_error": 0.40,  # a statement that finds keys fails
    "sink_delay": 0.15,  # packs of a feed, or their acknowledgements, take a long time
    "sink_cut": 0.20,  # the connection to the queue is lost, with all packs under way
    "bypass_rolled_back": 0.20,  # a transaction is rolled back
    "bypass_slow": 0.30,  # or commits late
}

FROM_OUTSIDE = {  # how often per schedule, at the most likely
    "updater_crash": 2.0,
    "updater_pause": 2.0,
    "updater_stop": 1.0,  # SIGTERM: drain, leave
    "queue_move": 2.0,  # partitions change owners while both live
    "redis_outage": 1.0,
    "redis_pause": 1.0,  # SIGSTOP of the server
    "redis_restart": 1.0,  # all values and floors are lost
    "redis_evicts_value": 3.0,
    "redis_evicts_floor": 1.0,
    "redis_clock_ahead": 1.0,  # it jumps by more than load_age
    "db_outage": 1.0,
    "app_crash": 1.0,
}

TO_GROUPS = {  # likewise, where the queue is a group
    "group_restart": 1.5,  # killed, and started again at once: under its instance id, if it has one
    "group_storm": 1.0,  # several rebalances in a row
    "group_commits_lost": 2.0,  # the last acknowledged commits are forgotten
    "group_retention": 1.0,  # records vanish before they are done
    "group_growth": 1.0,  # twice as many partitions
    "group_anew": 0.5,  # the topic is deleted and made again
}

TO_FILES = {
    "state_gone": 1.5,  # the file is removed
    "state_alien": 2.0,  # or replaced by foreign bytes
}

TO_FLEETS = {
    "fleet_lost": 2.0,  # Redis forgets all claims
    "fleet_cut_off": 1.5,  # one member's exchanges fail for a while, though it reaches everything else
}

TO_FEEDS = {
    "feed_outage": 1.0,  # the log cannot be reached
    "feed_lost": 1.0,  # the log has forgotten all that was not confirmed
    "feed_reader_cut": 1.0,  # who reads has lost its turn, and does not know it
    "feed_reader_killed": 1.0,
    "feed_reader_frozen": 1.0,  # for longer than its turn
}

IN_PASSING = (  # results of other faults
    "put_back",  # a pack of hints that had been open for long
    "thrown_out",  # a member was silent for too long, or did not join in time
    "static_return",  # a static member was back before its session had ended, and no other member noticed
    "static_late",  # or later
)

FED_IN_PASSING = (
    "lookup_given_up",  # so all keys of the namespace count as changed
    "swept",
    "sweep_failed",
    "queue_full",  # a feed's keys waited for room
    "bypass_bulk",
    "bypass_deletes",
    "bypass_truncates",
    "bypass_changes_key",
    "bypass_changes_brand",
)
FED_KINDS = (*AT_FEEDS, *TO_FEEDS, *FED_IN_PASSING)
"""The kinds of schedules with a feed alone."""

AT_QUEUES = tuple(kind for kind in AT_PORTS if kind.startswith("queue_"))
OUTSIDE = (*FROM_OUTSIDE, *TO_GROUPS, *TO_FILES, *TO_FLEETS)
KINDS = (*AT_PORTS, *AT_GROUPS, *AT_FILES, *OUTSIDE, *IN_PASSING, "app_foreign", "app_fill")


class Faults:
    """The random faults of one schedule."""

    def __init__(self, rates, random):
        self.rates = rates
        self.fired = Counter()
        self.on = True
        self._random = random

    def __call__(self, kind):
        """Whether this fault happens now. If so, it is counted."""
        rate = self.rates.get(kind)
        if rate and self.on and self._random.random() < rate:
            self.fired[kind] += 1
            return True
        return False


def draw_rates(random):
    """Rates for some of the kinds, low or high. Now and then a schedule has none."""
    return _draw(random, AT_PORTS, FROM_OUTSIDE)


def draw_group_rates(random):
    """The rates of a group's faults."""
    return _draw(random, AT_GROUPS, TO_GROUPS)


def draw_file_rates(random):
    """The rates of the faults of a file of learned state."""
    return _draw(random, AT_FILES, TO_FILES)


def draw_feed_rates(random):
    """The rates of a feed's faults."""
    return _draw(random, AT_FEEDS, TO_FEEDS)


def draw_fleet_rates(random):
    """The rates of a fleet's faults."""
    return {kind: most for kind, most in TO_FLEETS.items() if random.random() < 0.8}  # there are few fleets


def _draw(random, at_ports, from_outside):
    share = random.choice((0.0, 0.15, 0.15, 0.3, 0.3, 0.3, 0.6))
    rates = {}
    for kind, most in at_ports.items():
        if random.random() < share:
            rates[kind] = most * random.choice((0.2, 0.5, 1.0))
    for kind, most in from_outside.items():
        if random.random() < share:
            rates[kind] = most * random.choice((0.5, 1.0))
    return rates
