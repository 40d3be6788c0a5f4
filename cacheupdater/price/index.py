"""What one load is worth: the stale reads that it prevents, per key, in closed form.

`policy` evaluates these for whole arrays of keys, `outlook` for a sample of them. Notation: a key is read `mu` times a
second; it was last loaded `tau` seconds ago; S(s) is the chance that it did not change within s seconds. To load now rather
than a moment later is worth

    W = mu * (INT_0^tau S(s) ds - tau * S(tau))

W is the Whittle index of the scheduling problem and the Lagrange condition of its optimum (Cho and Garcia-Molina 2003):
refresh each key whose W is above one common price. Change rates are not known but learned, as Gamma(a, b). Then
S(s) = (b / (b + s)) ** a. With a <= 1 the index grows without bound, so that no key is forgotten for ever.

Pure functions of arrays; double precision inside, for the differences of nearly equal terms.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Doubles: TypeAlias = NDArray[np.float64]

_SMALL = 1e-3  # (1 + a) tau / b below which the leading term is truer than the difference
_OFF_POLE = 1e-12  # from a = 1 and a = 2, where 0 / 0 has a limit; the next float32 beside them is far away


def worth(
    mu: Doubles, a: Doubles, b: Doubles, tau: Doubles, *, kappa: Doubles | float
) -> tuple[Doubles, Doubles]:
    """(p, W): the chance that the value is out of date by now, and the index of a load now.

    `kappa` is how much worse a stale read becomes with each second of the value's staleness: W counts
    stale reads, plus kappa times the seconds by which they were out of date.
    """
    x = tau / b
    log = np.log1p(x)
    survival = np.exp(-a * log)
    one = (1.0 + _OFF_POLE) - a
    two = one + 1.0
    rise = np.expm1(one * log) / one  # INT_0^x (1 + y) ** -a dy
    steep = np.expm1(two * log) / two  # INT_0^x (1 + y) ** (1 - a) dy
    stale = b * (rise - x * survival)
    aged = b * b * (0.5 * x * x - (steep - rise))
    small = x * (1.0 + a) < _SMALL
    if small.any():
        leading = a * tau * x
        stale = np.where(small, 0.5 * leading, stale)
        aged = np.where(small, leading * tau / 3.0, aged)
    return 1.0 - survival, mu * (stale + kappa * np.maximum(aged, 0.0))


def worth_of_known(mu: Doubles, a: Doubles, b: Doubles, *, kappa: Doubles | float = 0.0) -> Doubles:
    """The index of a value that is known to be out of date: the reads that a fresh copy will serve in its life, and
    kappa times the seconds that they would otherwise be older by."""
    life = b / a
    return mu * life * (1.0 + kappa * life)


def poisson(mu: Doubles, rate: Doubles, tau: Doubles) -> Doubles:
    """The index where the change rate is known: W = mu/rate * (1 - (1 + x) e**-x), x = rate * tau."""
    x = rate * tau
    return np.asarray(mu / rate * -(np.expm1(-x) + x * np.exp(-x)))


def poisson_age(mu: Doubles, rate: Doubles, tau: Doubles) -> Doubles:
    """The same for seconds of staleness: mu * (tau**2 / 2 + tau e**-x / rate - (1 - e**-x) / rate**2)."""
    x = rate * tau
    return np.asarray(mu * (0.5 * tau * tau + tau * np.exp(-x) / rate + np.expm1(-x) / rate**2))
