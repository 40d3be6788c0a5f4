"""Segments on a real disk: what was written is read back, and damage costs no more than what it hits."""

from __future__ import annotations

import io
import os
import random
import resource
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from cacheupdater.adapters.spill_files import Reader, SpillFiles
from cacheupdater.adapters.spill_files.records import OVERHEAD, record
from cacheupdater.errors import Misconfigured, Unavailable
from cacheupdater_client.protocol.wire import CHANGE, TOUCH, decode_pack, encode_pack

MARKER = b"\x00marker\xff"
PACKS = [
    encode_pack(CHANGE, 7, [b"product:%d" % number for number in range(first, first + 5)], [1, 2, 3, 4, 5])
    for first in range(0, 100, 5)
]


def read(data, marker=MARKER):
    reader = Reader(io.BytesIO(bytes(data)), marker)
    found = []
    while (pack := reader.next()) is not None:
        found.append(pack)
    return found, reader.damaged


def segment():
    return b"".join(record(MARKER, pack) for pack in PACKS)


def all_of(files, number):
    reader = files.reader(number)
    found = []
    while (pack := reader.next()) is not None:
        found.append(pack)
    reader.close()
    return found


@pytest.fixture
def spill(tmp_path):
    files = SpillFiles(str(tmp_path / "spill"))
    yield files
    files.close()


# --- records ------------------------------------------------------------------------------------------


def test_a_sound_segment_gives_all_its_packs():
    assert read(segment()) == (PACKS, 0)
    assert read(b"") == ([], 0)
    assert len(segment()) == sum(OVERHEAD + len(pack) for pack in PACKS)


def test_a_segment_cut_off_at_any_byte_gives_all_packs_before_the_cut():
    whole = segment()
    ends = [0]
    for pack in PACKS:
        ends.append(ends[-1] + OVERHEAD + len(pack))
    for cut in range(len(whole) + 1):
        found, damaged = read(whole[:cut])
        sound = sum(end <= cut for end in ends) - 1
        assert found == PACKS[:sound]
        assert damaged == (cut not in ends)


def test_no_flipped_bit_gives_a_pack_that_was_not_written_and_each_costs_one_pack(amount):
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng, whole = random.Random(seed), segment()
    for _ in range(amount(1_000, 10_000)):
        at = rng.randrange(len(whole) * 8)
        bad = bytearray(whole)
        bad[at // 8] ^= 1 << at % 8
        found, damaged = read(bad)
        assert len(found) == len(PACKS) - 1
        assert set(found) < set(PACKS)
        assert damaged == 1


def test_garbage_and_many_flips_never_give_a_pack_that_was_not_written(amount):
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng, whole = random.Random(seed), segment()
    for _ in range(amount(100, 5_000)):
        bad = bytearray(whole)
        for _ in range(rng.randint(1, 200)):
            bad[rng.randrange(len(bad))] = rng.randrange(256)
        place = rng.randrange(len(bad))
        bad[place:place] = rng.randbytes(rng.randint(0, 100_000))
        assert set(read(bad)[0]) <= set(PACKS)


def test_a_client_cannot_hide_a_record_in_a_key():
    """It knows the form of a record, and not the marker of the segment."""
    forged = record(b"guessed!", encode_pack(CHANGE, 7, [b"not:sent"]))
    outer = encode_pack(CHANGE, 7, [b"p:" + forged])
    data = bytearray(record(MARKER, outer) + record(MARKER, PACKS[0]))
    data[3] ^= 1
    assert read(data) == ([PACKS[0]], 1)


def test_a_large_segment_is_read_pack_by_pack():
    pack = encode_pack(TOUCH, 7, [b"%0200d" % number for number in range(1000)])
    file = io.BytesIO(record(MARKER, pack) * 20)
    reader = Reader(file, MARKER)
    assert reader.next() == pack
    assert file.tell() < 2 * len(pack)


# --- files --------------------------------------------------------------------------------------------


def test_packs_are_found_again_by_the_next_process_and_only_our_user_may_read_them(tmp_path):
    folder = tmp_path / "deep" / "spill"
    old = os.umask(0)
    try:
        first = SpillFiles(str(folder))
        for pack in PACKS[:3]:
            assert first.append(2, pack, urgent=True) == OVERHEAD + len(pack)
        first.append(1, PACKS[4], urgent=False)
        first.sync()
        first.close()
    finally:
        os.umask(old)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(each.stat().st_mode) for each in folder.iterdir()} == {0o600}
    second = SpillFiles(str(folder))
    assert [(each.number, each.urgent) for each in second.found()] == [(1, False), (2, True)]
    assert all_of(second, 2) == PACKS[:3]
    second.remove(2)
    assert all_of(second, 1) == [PACKS[4]]
    second.close()
    assert [each.name[:7] for each in sorted(folder.iterdir())] == ["lock", "touches"]


def test_a_second_process_is_refused_until_the_first_has_gone(tmp_path):
    first = SpillFiles(str(tmp_path / "spill"))
    with pytest.raises(Misconfigured, match="another collector uses"):
        SpillFiles(str(tmp_path / "spill"))
    first.close()
    SpillFiles(str(tmp_path / "spill")).close()


def test_a_lock_goes_with_its_process_whatever_ends_it(tmp_path):
    code = (
        "import os, sys; from cacheupdater.adapters.spill_files import SpillFiles;"
        "SpillFiles(sys.argv[1]); os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "spill"], check=False)
    assert done.returncode == -9
    SpillFiles(str(tmp_path / "spill")).close()


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o701])
def test_a_directory_that_others_may_enter_is_refused_and_left_as_it_is(tmp_path, mode):
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(Misconfigured, match="nobody else may enter"):
        SpillFiles(str(folder))
    assert stat.S_IMODE(folder.stat().st_mode) == mode
    assert not list(folder.iterdir())


def test_a_path_that_is_no_directory_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(Misconfigured, match="cannot be used"):
        SpillFiles(str(tmp_path / "file"))


def test_foreign_files_are_left_alone(tmp_path):
    folder = tmp_path / "spill"
    files = SpillFiles(str(folder))
    names = ["notes.txt", "urgent-1.segment", "urgent-0000000000000001-zzzzzzzzzzzzzzzz.segment", ".hidden"]
    for name in names:
        (folder / name).write_bytes(b"mine")
    assert files.found() == []
    files.close()
    assert {each.name for each in folder.iterdir()} == {*names, "lock"}


def name_of(number):
    return f"urgent-{number:016}-{'0' * 16}.segment"


def test_segments_that_are_no_files_are_named_in_an_error(tmp_path):
    folder = tmp_path / "spill"
    folder.mkdir(mode=0o700)
    (folder / name_of(1)).mkdir()
    (folder / name_of(2)).symlink_to("/etc/passwd")
    os.mkfifo(folder / name_of(3))
    spill = SpillFiles(str(folder))
    assert [each.number for each in spill.found()] == [1, 2, 3]
    for number in (1, 2, 3):
        with pytest.raises(Unavailable, match="cannot be read"):
            spill.reader(number)
    with pytest.raises(Unavailable, match="cannot be removed"):
        spill.remove(1)
    assert Path("/etc/passwd").exists()
    spill.close()


def test_a_disk_that_takes_only_a_part_of_a_record_keeps_what_was_there_before(spill):
    """RLIMIT_FSIZE makes a real write fail in its middle, as a full disk does."""
    spill.append(1, PACKS[0], urgent=True)
    spill.append(1, PACKS[1], urgent=True)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    sound = 2 * OVERHEAD + len(PACKS[0]) + len(PACKS[1])
    resource.setrlimit(resource.RLIMIT_FSIZE, (sound + 20, before[1]))
    try:
        with pytest.raises(Unavailable, match="cannot be written"):
            spill.append(1, PACKS[2], urgent=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    spill.sync()
    assert all_of(spill, 1) == PACKS[:2]


def test_many_packs_are_one_fsync(spill, monkeypatch):
    synced = []
    real = os.fsync
    spill.append(1, PACKS[0], urgent=True)
    spill.sync()
    monkeypatch.setattr(os, "fsync", lambda descriptor: (synced.append(descriptor), real(descriptor)))
    for pack in PACKS:
        spill.append(1, pack, urgent=True)
        spill.append(2, pack, urgent=False)
    spill.sync()
    spill.sync()
    files = [each for each in synced if each in spill._open.values()]
    assert len(files) == 1


def test_what_is_read_back_decodes_to_the_keys_that_were_sent(spill):
    spill.append(1, PACKS[0], urgent=True)
    spill.sync()
    [pack] = all_of(spill, 1)
    assert decode_pack(pack).keys == [b"product:%d" % number for number in range(5)]
