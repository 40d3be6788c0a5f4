"""Child processes that end with the process that started them, however that ends: so no orphan stays.

Who starts a server or an updater of its own passes its command line through here. On Linux the kernel sees to it, and
watches the thread that started the child: start from a thread that lives long, the main one. Elsewhere the command
stays what it is, and only an end in order takes the child along.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

# the child asks to be killed with its parent (prctl 1, signal 9), then becomes the program
_DIE_WITH_PARENT = "import ctypes,os,sys; ctypes.CDLL(None).prctl(1, 9); os.execv(sys.argv[1], sys.argv[1:])"


def dying_with_us(command: Sequence[str]) -> list[str]:
    """The same command, to be killed with this process. Its first word is a path: PATH is not searched."""
    if sys.platform != "linux":
        return list(command)
    return [sys.executable, "-I", "-S", "-c", _DIE_WITH_PARENT, *command]
