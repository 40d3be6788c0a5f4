"""Exit codes, as in sysexits.h: what a supervisor or a script may rely on."""

OK = 0
USAGE = 2  # argparse's own
SOFTWARE = 70  # failed inside: starting again may help
CONFIG = 78  # a person must change something first
SIGNALLED = 128  # plus the signal's number: aborted by a second signal, as a shell reports it
