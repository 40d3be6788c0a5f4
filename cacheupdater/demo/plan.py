"""The numbers of the demonstration, each with its unit and reason. Every module of this package takes them from here.

The load is small on purpose. It must run on two slow, shared cores beside its own Redis and database, so that the lanes
differ by what they do and not by the speed of the machine. The shop is small and quick too: its row budget covers all
products in three seconds, so the policy learns in ten seconds what takes minutes in a shop of real size.
"""

from __future__ import annotations

PRODUCTS = 80  # enough for a few hot and many cool ones; few enough that the budget covers all quickly
SKEW = 0.8  # popularity of the n-th product is n ** -SKEW, as in most measured web traffic
READS_PER_S = 600.0  # by each of the four applications; together they take half a core
# threads of each application: even if a busy machine takes 20 ms for a read, the load stays the same
READERS = 8

CHANGES_PER_S = 15.0  # prices: one for two rows of the budget, so that a policy has a choice
# sigma of the logarithms of the products' change rates: a few change every second, half of all once in half a minute
UNEVEN = 2.0
HOT = 16  # the most popular products, with half of all reads: they stand still for a while

# rows per second that + and - choose from: two steps up double the budget. At the largest, every fifth read of the TTL lane
# waits, and so many waits alone make its values fresh
BUDGETS = (8, 11, 15, 21, 30, 42, 60, 85, 120)
BUDGET = 30  # at first: a row for twenty reads; a cache that needs more rows is hardly worth having
BURST_S = 1.0  # of unspent budget may be saved up

KEEP_S = 3600  # how long the updater's values live: longer than any run, so that none expires

WARM_UP_S = 10.0  # nothing is counted: the budget covers all products almost four times, to learn from
# of the run: as usual, and with the hot products still. The updater is killed after these, for the new one learns anew
# and would spoil the figures of either.
SHARES = (0.6, 0.2)
DOWN_S = 1.0  # how long the killed updater stays away before it is started again
SHORTEST_WITH_KILL_S = 6.0  # shorter runs have one part only
# of the first part. In 9 s, by the luck of a few hot products, `price` had 8.7 % stale and the TTL 8.5 %; in 18 s 8.0 and 10.1
SHORTEST_TO_COMPARE_S = 15.0

TURN_S = 0.05  # between two looks of the conductor at what has come in
BATCH_S = 0.05  # between two reports of an application to the conductor
REFRESH_S = 1.0  # between two frames of the screen, and looks at the updater's metrics
WINDOW_S = 3.0  # the live figures are those of the last seconds
FOLLOW_S = 3.0  # between two changes that are followed
START_TIMEOUT_S = 30.0  # a cold start of six processes from a slow disk; usually 3 s
EOF_TIMEOUT_S = 5.0  # for a process or thread that was told to stop
