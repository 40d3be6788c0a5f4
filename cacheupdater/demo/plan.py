"""The numbers of the demonstration, each with its unit and reason. Everything in this package takes them from here.

The load is small on purpose: it must run on two slow, shared cores beside its own Redis and database, so that what
differs between the lanes is what they do and not how fast the machine is. The shop is small too, and quick: a row
budget that goes round all products in three seconds teaches in ten seconds what takes minutes in a shop of real size.
"""

from __future__ import annotations

PRODUCTS = 80  # enough for a few hot and many cool ones; few enough that the budget goes round quickly
SKEW = 0.8  # popularity of the n-th product is n ** -SKEW, as in most measured web traffic
READS_PER_S = 600.0  # by each of the four applications: half a core in all
# threads of each application: a busy machine may take 20 ms for a read; the load stays what it is
READERS = 8

CHANGES_PER_S = 15.0  # prices: one for two rows of the budget, so there is something to choose
# sigma of the logarithms of the products' change rates: a few change every second, half of them once in half a minute
UNEVEN = 2.0
HOT = 16  # the most popular products, with half of all reads: those that stand still for a while

# rows per second that + and - choose from: twice either is twice or half as many. At the last every fifth read of the TTL
# waits, and who lets so many wait has fresh values by that alone
BUDGETS = (8, 11, 15, 21, 30, 42, 60, 85, 120)
BUDGET = 30  # at first: a row for twenty reads; a cache that needs more of them is hardly worth having
BURST_S = 1.0  # of the budget may be saved up

KEEP_S = 3600  # how long the updater's values live: longer than any run, for nothing shall expire there

WARM_UP_S = 10.0  # nothing is counted: the budget goes round almost four times, so that there was something to learn from
# of the run: as usual, and with the hot products still. In the rest the updater is killed, for the new one begins
# to learn anew and would tell nothing of either.
SHARES = (0.6, 0.2)
DOWN_S = 1.0  # how long the killed updater stays away before it is started again
SHORTEST_WITH_KILL_S = 6.0  # shorter runs have one part only
# of the first part: in 9 s the luck of a few hot products gave `price` 8.7 % against 8.5 % of the TTL, in 18 s 8.0 against 10.1
SHORTEST_TO_COMPARE_S = 15.0

BATCH_S = 0.05  # between two reports of an application to the conductor
REFRESH_S = 1.0  # between two frames of the screen, and looks at the updater's metrics
WINDOW_S = 3.0  # the live figures are those of the last seconds
FOLLOW_S = 3.0  # between two changes that are followed through
START_TIMEOUT_S = 30.0  # a cold start of six processes from a slow disk; usually 3 s
EOF_TIMEOUT_S = 5.0  # for what has been told to stop
