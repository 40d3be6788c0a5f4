"""The numbers of the demonstration, each with its unit and reason. Everything in this package takes them from here.

The load is small on purpose: it must run on two slow, shared cores beside its own Redis and database, so that what
differs between the lanes is what they do and not how fast the machine is.
"""

from __future__ import annotations

PRODUCTS = 400  # enough for a few hot and many cool ones; small enough to read them all once in the warm-up
SKEW = 0.8  # popularity of the n-th product is n ** -SKEW, as in most measured web traffic
READS_PER_S = 400.0  # by each of the three applications: a quarter of one core in all
# threads of each application: a busy machine may take 20 ms for a read; the load stays what it is
READERS = 8
CHANGES_PER_S = 16.0  # prices; all products alike, so each keeps its price for 25 s on average

TTL_S = 2  # of the ordinary cache-aside, in all three applications: their code is the same
EVERY_S = 2.3  # between two refreshes of one product: a little above the TTL, so that it costs no more rows
TOLD_EVERY_S = 10.0  # where changes are announced, the interval is only the net below
KEEP_S = 120  # how long the updater's values live; every refresh renews it
BUDGET_ROWS_PER_S = 2000  # never reached: the budget is not what is shown here

WARM_UP_S = 4.0  # nothing is counted: two TTLs, so that all lanes are in their steady state
DOWN_S = 1.0  # how long the killed updater stays away before it is started again
SHORTEST_WITH_KILL_S = 6.0  # shorter runs have no time for it

BATCH_S = 0.05  # between two reports of an application to the conductor
REFRESH_S = 1.0  # between two frames of the screen, and looks at the updater's metrics
WINDOW_S = 3.0  # the live figures are those of the last seconds
FOLLOW_S = 3.0  # between two changes that are followed through
START_TIMEOUT_S = 30.0  # a cold start of five processes from a slow disk; usually 2 s
EOF_TIMEOUT_S = 5.0  # for what has been told to stop
