"""One file: whole or not at all, whatever fails. A place that can never work is reported at the start."""

from __future__ import annotations

import os
import stat

import pytest

from cacheupdater.adapters.state_file import StateFile
from cacheupdater.errors import Faulty, Misconfigured, Unavailable


@pytest.fixture
def file(tmp_path):
    return StateFile(str(tmp_path / "learned"), most=100)


def test_what_was_written_last_is_read(file, tmp_path):
    assert file.read() is None
    file.write([b"one", b"two"])
    file.write([b"three"])

    assert file.read() == b"three"
    assert [each.name for each in tmp_path.iterdir()] == ["learned"]
    assert stat.S_IMODE((tmp_path / "learned").stat().st_mode) == 0o600


def test_a_write_that_fails_leaves_the_last_version_and_no_half_one(file, tmp_path):
    file.write([b"good"])

    def pieces():
        yield b"ba"
        raise OSError(28, "No space left on device")

    with pytest.raises(Unavailable, match="No space left"):
        file.write(pieces())
    assert file.read() == b"good"
    assert [each.name for each in tmp_path.iterdir()] == ["learned"]


def test_more_than_its_bound_is_not_read(file, tmp_path):
    (tmp_path / "learned").write_bytes(bytes(101))

    with pytest.raises(Faulty, match="larger than 100"):
        file.read()


def test_what_is_set_aside_is_not_written_over(file, tmp_path):
    (tmp_path / "learned").write_bytes(b"my notes")
    place = file.set_aside()
    file.write([b"new"])

    assert place == str(tmp_path / "learned.old")
    assert (tmp_path / "learned.old").read_bytes() == b"my notes"
    assert file.read() == b"new"
    (tmp_path / "learned").unlink()
    with pytest.raises(Unavailable, match="renamed"):
        file.set_aside()


def test_a_path_that_can_never_be_written_is_a_misconfiguration(tmp_path):
    with pytest.raises(Misconfigured, match="cannot be used: No such file or directory"):
        StateFile(str(tmp_path / "nowhere" / "learned"), most=100)
    with pytest.raises(Misconfigured, match="is a directory"):
        StateFile(str(tmp_path), most=100)
    with pytest.raises(Misconfigured, match="cannot be used"):
        StateFile("/proc/learned", most=100)


def test_a_folder_that_vanishes_later_is_only_unavailable(tmp_path):
    folder = tmp_path / "state"
    folder.mkdir()
    file = StateFile(str(folder / "learned"), most=100)
    folder.rmdir()

    with pytest.raises(Unavailable, match="cannot be written"):
        file.write([b"x"])


def test_a_successor_that_starts_takes_nothing_from_a_save_under_way(file, tmp_path):
    def pieces():
        yield b"the last "
        StateFile(str(tmp_path / "learned"), most=100)  # it looks whether it could write
        yield b"words"

    file.write(pieces())
    assert file.read() == b"the last words"


def test_two_that_save_at_once_both_write_a_whole_file(file, tmp_path):
    other = StateFile(str(tmp_path / "learned"), most=100)

    def pieces():
        yield b"the first "
        other.write([b"another's"])
        assert file.read() == b"another's"
        yield b"words"

    file.write(pieces())
    assert file.read() == b"the first words"
    assert [each.name for each in tmp_path.iterdir()] == ["learned"]


def test_half_a_file_of_one_that_crashed_is_gone_after_the_next_start(file, tmp_path):
    file.write([b"good"])

    def pieces():
        yield b"ba"
        os._exit(9)

    child = os.fork()
    if not child:
        file.write(pieces())
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    assert len(list(tmp_path.iterdir())) == 2

    again = StateFile(str(tmp_path / "learned"), most=100)
    assert again.read() == b"good"
    assert [each.name for each in tmp_path.iterdir()] == ["learned"]


@pytest.mark.timeout(20)
def test_a_pipe_in_the_files_place_is_refused_and_holds_up_nobody(tmp_path):
    os.mkfifo(tmp_path / "learned")
    with pytest.raises(Misconfigured, match="no ordinary file"):
        StateFile(str(tmp_path / "learned"), most=100)


@pytest.mark.timeout(20)
def test_a_pipe_that_comes_later_is_no_state(file, tmp_path):
    os.mkfifo(tmp_path / "learned")
    with pytest.raises(Faulty, match="no ordinary file"):
        file.read()


@pytest.mark.timeout(20)
def test_what_others_put_beside_the_file_holds_up_nobody(tmp_path):
    os.mkfifo(tmp_path / "learned.new-pipe")
    (tmp_path / "learned.new-folder").mkdir()
    file = StateFile(str(tmp_path / "learned"), most=100)
    file.write([b"good"])
    assert file.read() == b"good"


def test_links_that_others_put_beside_the_file_lead_nowhere(tmp_path):
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    for name in ("learned.new", "learned.new-x", "learned.old", "learned.probe-x"):
        (tmp_path / name).symlink_to(victim)
    file = StateFile(str(tmp_path / "learned"), most=100)
    file.write([b"good"])
    file.set_aside()
    file.write([b"better"])
    assert victim.read_bytes() == b"precious"
    assert (tmp_path / "learned.old").read_bytes() == b"good"
    assert not (tmp_path / "learned").is_symlink()
