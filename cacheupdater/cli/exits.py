"""Exit codes, as in sysexits.h. Supervisors and scripts may rely on them."""

OK = 0
USAGE = 2  # argparse's own
RESTART = 3  # of `reload`: the running updater must be started again to use the file
SOFTWARE = 70  # an internal failure: starting again may help
UNFINISHED = 75  # a drain of a queue was stopped before the end: it must be started again to go on
CONFIG = 78  # a person must change something first
SIGNALLED = 128  # plus the signal's number, as shells report it: aborted by a second signal
