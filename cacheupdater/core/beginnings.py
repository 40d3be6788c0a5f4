"""How keys begin, and how like the prefix of a pattern a key begins: for a person who has misspelled one of the two.

`service.whose` finds the patterns that a key was perhaps meant for, and `service.search` the keys that a pattern was perhaps
meant for. Both ask only when a person asks them. No hint is compared here. Pure.
"""

from __future__ import annotations

import re
from difflib import SequenceMatcher
from itertools import islice

LIKE = 0.6  # of 1: from here on, difflib calls two words close
_HEADS_MAX = 8  # of a key that are compared; prefixes have one to three words
_HEAD_MOST = 256  # bytes of a key that are looked at; comparing takes the square of that
_END = re.compile(rb"[^0-9A-Za-z]|(?<=[A-Za-z])(?=[0-9])")  # behind a sign, or between a word and its number


def beginning(key: bytes) -> bytes:
    """What many keys of one kind have in common: all but the last word, without the words that hold a number."""
    head, colon, _ = key.rpartition(b":")
    return re.sub(rb"[^:]*[0-9][^:]*", b"", head) + colon if colon else re.sub(rb"[0-9].*", b"", key)


def likeness(key: bytes, prefix: bytes) -> float:
    """How much the key begins like the prefix, from 0 to 1."""
    matcher = SequenceMatcher(b=prefix.decode("latin-1"), autojunk=False)
    best = 0.0
    for head in _heads(key):
        matcher.set_seq1(head)
        if matcher.real_quick_ratio() > best and matcher.quick_ratio() > best:
            best = max(best, matcher.ratio())
    return best


def _heads(key: bytes) -> list[str]:
    """The beginnings of the key that may be meant as a prefix; the whole of it if it is one word."""
    text = key[:_HEAD_MOST]
    ends = [each.end() for each in islice(_END.finditer(text), _HEADS_MAX)]
    return [text[:end].decode("latin-1") for end in ends or [len(text)]]
