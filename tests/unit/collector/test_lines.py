"""JSON lines: what is a hint, and which line is named when one is not."""

from __future__ import annotations

import pytest

from cacheupdater.collector.lines import BadLine, packs_of
from cacheupdater_client.protocol.wire import CHANGE, MISS, TOUCH, Pack

GOOD = b'{"key": "product:7", "kind": "touch"}'


def test_lines_become_packs_by_kind_with_their_counts():
    body = b"\n".join(
        [
            GOOD,
            b'{"kind":"change","key":"gr\\u00fcn:1"}\r',
            b"",
            b'{"key": "product:7", "kind": "touch", "count": 3, "since": "a later version"}',
            b'{"key": "product:8", "kind": "miss", "count": 2}',
        ]
    )
    assert packs_of(body) == (
        4,
        [
            Pack(CHANGE, 0, ["grün:1".encode()], [1]),
            Pack(MISS, 0, [b"product:8"], [2]),
            Pack(TOUCH, 0, [b"product:7"], [4]),
        ],
    )


def test_many_lines_are_cut_into_packs():
    body = b"\n".join(b'{"key": "k%d", "kind": "touch"}' % number for number in range(2500))
    lines, packs = packs_of(body)
    assert (lines, [len(pack.keys) for pack in packs]) == (2500, [1000, 1000, 500])


def test_nothing_is_no_hint():
    assert packs_of(b"") == (0, [])
    assert packs_of(b"\n \n") == (0, [])


@pytest.mark.parametrize(
    "line",
    [
        b"product:7",
        b"[]",
        b'{"key": "product:7"}',
        b'{"kind": "touch"}',
        b'{"key": "", "kind": "touch"}',
        b'{"key": 7, "kind": "touch"}',
        b'{"key": "product:7", "kind": "read"}',
        b'{"key": "product:7", "kind": "touch", "count": 0}',
        b'{"key": "product:7", "kind": "touch", "count": 1000001}',
        b'{"key": "product:7", "kind": "touch", "count": "3"}',
        b'{"key": "%s", "kind": "touch"}' % (b"k" * 1025),
        b'{"key": "%s", "kind": "touch"}' % ("ü" * 513).encode(),
        b'{"key": "\\ud800", "kind": "touch"}',
        b'{"key": "\xff", "kind": "touch"}',
        b"[" * 100_000,
    ],
)
def test_the_first_bad_line_is_named(line):
    with pytest.raises(BadLine, match=r"^line 3: ."):
        packs_of(b"\n".join([GOOD, b"", line, b"worse", GOOD]))
