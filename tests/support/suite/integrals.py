"""Numerical integration for tests of closed forms: slow, general, and without a formula of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)


def integral(f: Callable[[np.ndarray], np.ndarray], high: float, *, scale: float) -> float:
    """INT_0^high f, for an f that bends around `scale`: Gauss and Legendre on panels that grow in proportion."""
    if high <= 0.0:
        return 0.0
    low = min(scale, high) * 1e-4
    ends = np.concatenate(([0.0], np.geomspace(low, high, max(60, int(8 * np.log(high / low))))))
    half, middle = np.diff(ends) / 2.0, (ends[1:] + ends[:-1]) / 2.0
    points = middle[:, None] + half[:, None] * _NODES
    return float((half[:, None] * _WEIGHTS * f(points)).sum())


def moments(log_density: Callable[[np.ndarray], np.ndarray], *, scale: float) -> tuple[float, float]:
    """Mean and variance of a positive quantity near `scale`, given the logarithm of its unnormalised density.

    On a logarithmic grid the trapezoid rule is exact to rounding for a function that vanishes at both ends.
    """
    logs = np.linspace(-110.0, 8.0, 60_001)
    points = np.exp(logs)
    density = log_density(points * scale) + logs
    weights = np.exp(density - density.max())
    mean = (weights * points).sum() / weights.sum()
    variance = (weights * (points - mean) ** 2).sum() / weights.sum()
    return float(mean * scale), float(variance * scale * scale)
