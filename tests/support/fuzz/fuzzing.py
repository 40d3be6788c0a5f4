"""Feeds a target of `targets` with unexpected inputs, and reports those that it fails on.

    python tests/support/fuzz/fuzzing.py packs --seed 7 --inputs 20000     begins as the seventh run has begun
    python tests/support/fuzz/fuzzing.py packs build/fuzz/packs-1f0a       one input again

With atheris (the extra `dev` brings it where it has wheels) inputs are steered by the branches that they reach. Without it,
and in the short form, they are steered by the words that the target returns: an input that ends in a new way is changed
further. No input may raise an unexpected error, end the process, take a tenth of a second of CPU time, or 32 MiB of memory.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import sys
import tempfile
import time
import traceback
from contextlib import ExitStack
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
FOUND = ROOT / "build" / "fuzz"
HANG_S = 0.1  # of CPU time, so that other processes do not count
AGAIN = 3  # times that a slow input is tried again: it may have been the garbage collector
INPUT_MIB_MAX = 32  # that one input may add to the process' peak
RUN_MIB_MAX = 64  # that a whole run may add
STEERED_MIB_MAX = (
    2048  # the same with atheris, which keeps what it learns: 330 MiB were seen after 380,000 inputs
)
POOL_MAX = 2000  # inputs that ended in a way of their own


class Found(Exception):
    """An input on which the target failed."""

    def __init__(self, data, why):
        super().__init__(why)
        self.data = data


def peak():
    """The peak memory of this process, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform == "linux" else 1 << 20)


class Guard:
    """A target that is watched."""

    def __init__(self, target, most=RUN_MIB_MAX):
        """All inputs together may leave `most` MiB behind."""
        self._target, self._most = target, most
        self.inputs, self.slowest = 0, 0.0
        self._began = self._peak = None

    def __call__(self, data):
        self.inputs += 1
        word, took = self._timed(data)
        if took > HANG_S:
            took = min(took, *(self._timed(data)[1] for _ in range(AGAIN)))
        self.slowest = max(self.slowest, took)
        if took > HANG_S:
            raise Found(data, f"it took {took * 1000:.0f} ms of the processor")
        self._weigh(data)
        return word

    def _timed(self, data):
        before = time.thread_time()
        try:
            word = self._target(data)
        except BaseException as e:
            raise Found(data, traceback.format_exc()) from e
        return word, time.thread_time() - before

    def _weigh(self, data):
        now = peak()
        if self._peak is None:  # the first input has made all that is made only once
            self._began = now
        elif now - self._peak > INPUT_MIB_MAX:
            raise Found(data, f"it took {now - self._peak:.0f} MiB")
        self._peak = now
        if now - self._began > self._most:
            raise Found(data, f"{self.inputs:,} inputs have left {now - self._began:.0f} MiB")

    @property
    def grown(self):
        return (self._peak or 0) - (self._began or 0)


class Mutator:
    """Changes bytes at random."""

    ODD = (
        b"\0",
        b"\xff",
        b"\x7f",
        b"\x80" * 4,
        b"\xff" * 8,
        b"-1",
        b"9" * 30,
        b"\xef\xbb\xbf",
        b"\n",
        b"{" * 50,
    )

    def __init__(self, draw, samples, *, length, words):
        self._draw, self._length = draw, length
        self._words = [*self.ODD, *(word.encode() for word in words)]
        self.pool = list(samples)

    def input(self):
        data = bytearray(self._draw.choice(self.pool))
        for _ in range(self._draw.choice((1, 1, 2, 4, 8))):
            self._change(data)
        return bytes(data[: self._length])

    def _change(self, data):
        draw = self._draw
        at = draw.randrange(len(data) + 1)
        how = draw.randrange(6)
        if how == 0 and data:
            data[at - 1] ^= 1 << draw.randrange(8)
        elif how == 1 and data:
            data[at - 1] = draw.randrange(256)
        elif how == 2:
            del data[at : at + draw.choice((1, 2, 8, 64))]
        elif how == 3:
            data[at:at] = draw.choice(self._words)
        elif how == 4:
            data[at:at] = data[at : at + draw.choice((1, 4, 16, 256))] * draw.choice((1, 2, 9))
        else:
            other = draw.choice(self.pool)
            data[at:] = other[draw.randrange(len(other) + 1) :]

    def learn(self, data):
        if len(self.pool) < POOL_MAX:
            self.pool.append(data)


def plainly(guard, target, *, seed, enough):
    """Runs inputs, steered by words."""
    samples = target.samples()
    changed = Mutator(random.Random(seed), samples, length=target.length, words=target.words)
    known = {guard(each) for each in samples}
    while not enough(guard):
        data = changed.input()
        word = guard(data)
        if word not in known:
            known.add(word)
            changed.learn(data)


def steered(name, stack, *, seed, enough):
    """Runs inputs, steered by atheris. It never returns."""
    import atheris

    with atheris.instrument_imports(include=["cacheupdater", "cacheupdater_client"]):
        from fuzz.targets import TARGETS

        target = TARGETS[name]
        guard = Guard(target.make(stack), STEERED_MIB_MAX)
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cacheupdater-fuzz-")))
    corpus, spelled = folder / "corpus", folder / "words"
    corpus.mkdir()
    for at, sample in enumerate(target.samples()):
        (corpus / str(at)).write_bytes(sample)
    spelled.write_text(
        "".join(f'"{_spelled(word)}"\n' for word in (*target.words, "-1"))
    )  # it refuses an empty one

    def one(data):
        try:
            guard(data)
        except Found as e:
            _leave(stack, _report(name, seed, guard, e))
        if enough(guard):
            _leave(stack, _report(name, seed, guard, None))

    FOUND.mkdir(parents=True, exist_ok=True)
    options = [
        f"-seed={seed or 1}",
        f"-max_len={target.length}",
        f"-dict={spelled}",
        f"-artifact_prefix={FOUND}/{name}-",
    ]
    atheris.Setup(["fuzzing", *options, "-rss_limit_mb=0", "-timeout=60", "-verbosity=0", str(corpus)], one)
    atheris.Fuzz()


def _spelled(word):
    return "".join(
        chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\x{byte:02x}" for byte in word.encode()
    )


def _leave(stack, code):
    """Ends the process, for libFuzzer never returns to its caller."""
    stack.close()
    sys.stdout.flush()
    os._exit(code)


def _report(name, seed, guard, found):
    """Prints one line of JSON; before it, the finding and the command that replays it."""
    if found is not None:
        FOUND.mkdir(parents=True, exist_ok=True)
        file = FOUND / f"{name}-{os.urandom(4).hex()}"
        file.write_bytes(found.data)
        print(f"{found}\ninput: {found.data[:200]!r}\nreplay: {_command(name, file.relative_to(ROOT))}")
        print(f"or all of it: {_command(name, f'--seed {seed} --inputs {guard.inputs}')}")
    said = {
        "inputs": guard.inputs,
        "slowest_ms": round(guard.slowest * 1000, 1),
        "grown_mib": round(guard.grown),
    }
    print(json.dumps(said))
    return int(found is not None)


def _command(name, rest):
    return f"{Path(sys.executable).parent}/python tests/support/fuzz/fuzzing.py {name} {rest}".replace(
        f"{ROOT}/", ""
    )


def until(inputs, seconds):
    """A condition that ends the run once both the inputs and the seconds are used up."""
    began = time.monotonic()
    return lambda guard: guard.inputs >= inputs and time.monotonic() - began >= seconds


def main():
    sys.path[:0] = [str(ROOT), str(ROOT / "client"), str(ROOT / "tests" / "support")]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name")
    parser.add_argument("file", nargs="*", type=Path, help="inputs to try again")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--inputs", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, default=0.0, help="at the least")
    parser.add_argument("--plain", action="store_true", help="without atheris")
    said = parser.parse_args()
    with ExitStack() as stack:
        return _run(said, stack)


def _run(said, stack):
    enough = until(said.inputs, said.seconds)
    if not said.plain and not said.file:
        try:
            steered(said.name, stack, seed=said.seed, enough=enough)
        except ImportError as e:  # no wheel of atheris for this Python
            if e.name != "atheris":
                raise
    from fuzz.targets import TARGETS

    target = TARGETS[said.name]
    guard, found = Guard(target.make(stack)), None
    try:
        if said.file:
            for each in said.file:
                guard(each.read_bytes())
        else:
            plainly(guard, target, seed=said.seed, enough=enough)
    except Found as e:
        found = e
    return _report(said.name, said.seed, guard, found)


if __name__ == "__main__":
    sys.exit(main())
