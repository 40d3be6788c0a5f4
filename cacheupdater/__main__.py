"""Where the command begins: `cacheupdater` and `python -m cacheupdater` come here first.

Python looks into the working directory before anything else under `-m`, and wherever PYTHONPATH has an empty part, so a
`numpy.py` that somebody left there would run in the place of the real one. Therefore that folder is taken off the path
before the first import of ours. Commands that call the user's own code look there again, at last: `cli/workplace.py`.
What Python itself imports before this file (`warnings` under `-m`) only `python -P` keeps from there.

numpy reads its settings once, when it is imported. So the one that we need is made here too.
"""

# no `from __future__`: it is an import too, and the path is not clean yet
import gc
import os
import sys


def _forget_the_working_directory() -> None:
    """Unless we are installed right there, as where this is developed: then it comes last."""
    try:
        here = os.path.realpath(os.getcwd())  # noqa: PTH109  pathlib is not imported yet
    except OSError:  # it has been removed, so nothing lies there
        return
    kept = [each for each in sys.path if each and os.path.realpath(each) != here]
    home = os.path.realpath(os.path.join(os.path.dirname(__file__), os.pardir))  # noqa: PTH118, PTH120  as above
    sys.path[:] = [*kept, here] if here == home else kept


_forget_the_working_directory()

# Arrays grow by small pages. The first touch of a huge one (2 MiB) takes 4 to 8 ms on a virtual machine, in the middle of a
# turn, and several may come at once; finding and reading rows at random is no slower without them.
os.environ.setdefault("NUMPY_MADVISE_HUGEPAGE", "0")  # noqa: TID251  it is numpy that reads this

# Imports make 170,000 objects that stay. With Python's usual 700, collections in between take a twentieth of a start.
gc.set_threshold(50_000)

from cacheupdater.cli import main  # noqa: E402  the lines above come first

if __name__ == "__main__":
    sys.exit(main())
