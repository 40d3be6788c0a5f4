"""Where the command begins: `cacheupdater` and `python -m cacheupdater` come here first.

Python looks into the working directory before anything else under `-m`, and wherever PYTHONPATH has an empty part, so a
`numpy.py` that somebody left there would run in the place of the real one. Therefore that folder is taken off the path
before the first import of ours. Commands that call the user's own code look there again, at last: `cli/workplace.py`.
What Python itself imports before this file (`warnings` under `-m`) only `python -P` keeps from there.
"""

# no `from __future__`: it is an import too, and the path is not clean yet
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

from cacheupdater.cli import main  # noqa: E402  the line above comes first

if __name__ == "__main__":
    sys.exit(main())
