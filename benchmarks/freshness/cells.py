"""One cell of the results: one world under one budget, judged under every policy and compared with the bounds.

`run` spreads cells over two processes. A cell is plain data, so it can pass between processes and be kept as JSON.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from cacheupdater.config.models import SourceSection
from cacheupdater.core.limits import Limits
from freshness import baselines, bounds, ours, semireal, worlds
from freshness.truth import WINDOWS_S, Verdict, judge

if TYPE_CHECKING:
    from pathlib import Path

    from freshness.worlds import World

MADE_BUDGETS = (50.0, 200.0, 800.0)  # U/2, 2U, 8U
REAL_BUDGETS = (0.5, 2.0, 8.0)  # 0.23 U, 0.9 U, 3.6 U
MADE_BURST_S = 1.0  # the product's default
REAL_BURST_S = 30.0  # a second there stands for 44 minutes
STEP_S = 0.05  # a pack's age on its way: half of the client's 100 ms
SLOW_STEP_S = 0.1  # the same where loads are rare
FINE_STEP_S = 0.02  # the policy's own tick, where the hottest keys are loaded every gap of 0.1 s
REAL_STEP_S = 0.5  # 40 reads; a second there stands for 44 minutes
REAL_S = 18_000.0  # half of the three years: the whole takes twice as long with the same results
QUICK = {"keys": 400, "reads": 400.0, "changes": 4.0, "seconds": 240.0, "warm": 80.0}
QUICK_SHARE = 0.04  # of the world's changes and budgets in the quick form
QUICK_REAL_S = 1_800.0
GAPPED = "optimum with our gap"  # no key is loaded more often than the product would
OURS, UPDATED_AT, HINTED, HALF = "ours", "ours, updated_at", "ours, hinted", "ours, half hinted"
CHOOSY = ", least_gain"  # after a policy's name: with the default `least_gain`; without it, with 0
LEAST_GAIN: float = SourceSection.model_fields["least_gain"].default


@dataclass(frozen=True)
class Job:
    """What to measure."""

    world: str
    budget: float  # rows/s
    seed: int
    traces: Path
    quick: bool = False

    @property
    def real(self) -> bool:
        return self.world in semireal.ROWS


@dataclass
class Cell:
    """The results of one job."""

    world: str
    budget: float
    seed: int
    burst: float  # rows
    policies: dict[str, Verdict] = field(default_factory=dict)
    bounds: dict[str, float] = field(default_factory=dict)  # shares of stale reads
    iso_rows: float = 0.0  # rows/s at which min-interval is as fresh as ours
    iso_rows_choosy: float = 0.0  # the same, as fresh as ours with the default least gain

    def choosy(self) -> Cell:
        """This cell with the results for the default least gain in place of ours."""
        theirs = {name: verdict for name, verdict in self.policies.items() if not name.startswith(OURS)}
        mine = {
            name.removesuffix(CHOOSY): verdict
            for name, verdict in self.policies.items()
            if name.endswith(CHOOSY)
        }
        return replace(self, policies=theirs | mine, iso_rows=self.iso_rows_choosy)

    def window_use(self) -> float:
        """The fullest window of our runs, as a share of what the budget allows in it."""
        return max(
            most / (self.budget * span + self.burst)
            for name, verdict in self.policies.items()
            if name.startswith(OURS)
            for span, most in zip(WINDOWS_S, verdict.most, strict=True)
        )

    def plain(self) -> dict[str, object]:
        return asdict(self)

    @classmethod
    def of(cls, kept: dict[str, object]) -> Cell:
        cell = cls(**kept)
        cell.policies = {name: Verdict(**each) for name, each in cell.policies.items()}
        return cell


def jobs(seeds: list[int], traces: Path, *, quick: bool) -> list[Job]:
    """The jobs of all cells, the longest first."""
    real = semireal.ROWS if semireal.present(traces) else ()
    if quick:
        made = [Job(name, 200.0 * QUICK_SHARE, seeds[0], traces, quick=True) for name in "AE"]
        return made + [Job(name, 2.0, seeds[0], traces, quick=True) for name in real[:1]]
    wanted = [(name, budget) for budget in MADE_BUDGETS[::-1] for name in worlds.SETTINGS]
    wanted += [(name, budget) for name in real for budget in REAL_BUDGETS]
    return [Job(name, budget, seed, traces) for seed in seeds for name, budget in wanted]


def measure(job: Job) -> Cell:
    """All policies and bounds of one cell."""
    world = _world(job.world, job.seed, job.traces, quick=job.quick)
    burst = max(1.0, job.budget * (REAL_BURST_S if job.real else MADE_BURST_S))
    cell = Cell(job.world, job.budget, job.seed, burst)
    for name, rule in baselines.ON_ACCESS.items():
        cell.policies[name] = judge(
            world, baselines.on_access(world, baselines.tuned(world, rule, job.budget))
        )
    cell.policies["capped"] = judge(world, baselines.best_capped(world, job.budget, burst))
    oracle = baselines.sqrt_rates(world, job.budget)
    cell.policies["oracle"] = judge(world, baselines.scheduled(world, oracle))
    for name, given in _runs(job, burst).items():
        cell.policies[name] = judge(world, ours.run(world, given))
    cell.iso_rows = baselines.equally_fresh(world, cell.policies[OURS].stale)
    cell.iso_rows_choosy = baselines.equally_fresh(world, cell.policies[OURS + CHOOSY].stale)
    cell.bounds = _bounds(world, job)
    return cell


def _runs(job: Job, burst: float) -> dict[str, ours.Conditions]:
    """The conditions of our runs: the usual ones, and where the job asks for them, some with more information."""
    plain = ours.Conditions(job.budget, burst, _step(job), seed=job.seed)
    runs = {OURS: plain}
    if job.world == "E":
        runs[UPDATED_AT] = replace(plain, stamps=True)
    if job.real and job.budget in REAL_BUDGETS[1:]:
        runs[HINTED] = replace(plain, hinted=1.0)
    if job.real and job.budget == REAL_BUDGETS[1] and job.world == semireal.ROWS[0]:
        runs[HALF] = replace(plain, hinted=0.5)
    return runs | {name + CHOOSY: replace(given, least=LEAST_GAIN) for name, given in runs.items()}


def _step(job: Job) -> float:
    if job.real:
        return REAL_STEP_S
    if job.world == "B" and job.budget == MADE_BUDGETS[-1]:
        return FINE_STEP_S
    return SLOW_STEP_S if job.budget == MADE_BUDGETS[0] else STEP_S


def _bounds(world: World, job: Job) -> dict[str, float]:
    """The bounds. Those for known Poisson rates only where changes are Poisson and rates constant."""
    found = {"clairvoyant": bounds.clairvoyant_stale(world, job.budget)}
    if job.world in "ABCDEGH":
        for name, most in (("optimum", math.inf), (GAPPED, 1.0 / Limits().gap)):
            rates = bounds.optimal_rates(world.mu, world.lam, job.budget, most)
            found[name] = bounds.optimal_stale(world.mu, world.lam, rates)
            found[f"{name}, run"] = judge(world, baselines.scheduled(world, rates)).stale
        found["blocking optimum"] = bounds.blocking_stale(world.mu, world.lam, job.budget)
    return found


@lru_cache(maxsize=1)
def _world(name: str, seed: int, traces: Path, *, quick: bool) -> World:
    if name in worlds.SETTINGS:
        setting = worlds.SETTINGS[name]
        return worlds.make(setting.scaled(**QUICK) if quick else setting, seed)
    return semireal.make(name, seed, traces, seconds=QUICK_REAL_S if quick else REAL_S)
