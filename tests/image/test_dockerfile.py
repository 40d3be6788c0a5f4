"""The promises of the Dockerfile, checked in its text. `make image` tries the built image, which takes minutes."""

from __future__ import annotations

import importlib.util
import os
import re
import stat
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "Dockerfile").read_text()
STEPS = [
    re.sub(r"\\\n\s*", "", each).strip()
    for each in re.split(r"\n(?=[A-Z]+ )", "\n".join(x for x in TEXT.splitlines() if not x.startswith("#")))
]
BUILD, FINAL = (
    [each for each in part.split("\n") if each]
    for part in re.split(r"\n(?=FROM )", "\n".join(STEPS).strip(), maxsplit=2)[1:]
)


def steps(stage, word):
    return [each.removeprefix(word).strip() for each in stage if each.startswith(f"{word} ")]


def test_both_stages_begin_from_the_one_base_that_can_be_named():
    assert steps(BUILD, "FROM") == ["${BASE_IMAGE} AS build"]
    assert steps(FINAL, "FROM") == ["${BASE_IMAGE}"]


def test_every_install_is_by_hash_or_our_own_wheel():
    installs = [each for run in steps(BUILD, "RUN") for each in run.split("&&") if " install " in each]
    assert len(installs) == 3
    for each in installs:
        by_hash = "--require-hashes --only-binary :all:" in each and each.rstrip().endswith(".lock")
        assert by_hash or ("--no-deps --no-index --find-links dist cacheupdater" in each)


def test_the_project_is_copied_after_what_it_needs_is_installed():
    words = [each.split()[0] for each in BUILD]
    last_copy, first_copy = len(words) - 1 - words[::-1].index("COPY"), words.index("COPY")
    locked = next(at for at, each in enumerate(BUILD) if "requirements.lock" in each)
    assert locked < first_copy <= last_copy < len(words) - 1


def test_only_the_environment_and_empty_folders_are_copied_from_the_build():
    copies = steps(FINAL, "COPY")
    assert all(each.startswith("--from=build ") for each in copies)
    assert {each.split()[-2] for each in copies} == {"/opt/cacheupdater", "/build/empty"}


def test_the_last_stage_needs_no_shell():
    assert all(re.match(r"(--mount=\S+ )*\[", each) for each in steps(FINAL, "RUN"))
    assert steps(FINAL, "ENTRYPOINT") == ['["cacheupdater"]']
    assert steps(FINAL, "CMD") == ['["run", "--config", "/etc/cacheupdater/cacheupdater.yaml"]']


def test_the_image_runs_as_a_user_who_owns_only_two_folders():
    assert steps(FINAL, "USER") == ["65532:65532"]
    owned = [each.split()[-1] for each in steps(FINAL, "COPY") if "--chown=65532:65532" in each]
    assert owned == ["/var/lib/cacheupdater", "/run/cacheupdater"]


def test_the_build_context_holds_only_the_files_that_are_copied_or_mounted():
    lines = [each for each in (ROOT / ".dockerignore").read_text().splitlines() if not each.startswith("#")]
    assert lines[0] == "*"
    allowed = {each.removeprefix("!") for each in lines if each.startswith("!")}
    taken = {name for each in steps(BUILD, "COPY") for name in each.split()[:-1]}
    mounted = {each.split("/")[0] for each in re.findall(r"source=([\w./]+)", TEXT)}
    assert allowed == taken | mounted


# --- image/seal.py ---------------------------------------------------------------------------------------


@pytest.fixture
def sealing():
    spec = importlib.util.spec_from_file_location("seal", ROOT / "image/seal.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_sealing_removes_setuid_bits_and_the_write_right_of_all_users(sealing, tmp_path):
    program, open_folder, plain = tmp_path / "su", tmp_path / "spool", tmp_path / "plain"
    program.touch()
    program.chmod(0o4755)
    open_folder.mkdir()
    open_folder.chmod(0o1777)
    (open_folder / "note").touch()
    (open_folder / "note").chmod(0o666)
    plain.touch()
    plain.chmod(0o644)
    (tmp_path / "link").symlink_to("plain")
    os.mkfifo(tmp_path / "pipe", 0o600)
    sealing.seal(tmp_path)
    modes = {
        each.name: stat.S_IMODE(each.lstat().st_mode) for each in tmp_path.rglob("*") if not each.is_symlink()
    }
    assert modes == {"su": 0o755, "spool": 0o775, "note": 0o664, "plain": 0o644, "pipe": 0o600}


def test_sealing_removes_pip_and_leaves_other_packages(sealing, tmp_path):
    for name in ("pip", "pip-23.0.1.dist-info", "ensurepip", "pipeline", "redis"):
        (tmp_path / name).mkdir()
    sealing.without_pip([str(tmp_path)])
    assert sorted(each.name for each in tmp_path.iterdir()) == ["pipeline", "redis"]


def test_git_knows_every_file_from_which_the_image_is_built():
    made_of = ["Dockerfile", ".dockerignore", "image/seal.py", "image/build.lock", "image/requirements.lock"]
    done = subprocess.run(["git", "ls-files", *made_of], cwd=ROOT, capture_output=True, text=True, check=True)
    assert sorted(done.stdout.split()) == sorted(made_of)
