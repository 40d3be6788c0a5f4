"""`python -m cacheupdater` is the same as `cacheupdater`."""

import sys

from cacheupdater.cli import main

if __name__ == "__main__":
    sys.exit(main())
