"""How a key's change rate is learned: a Gamma(a, b) per key, moved by each load in closed form.

A load tells one bit: whether the value has changed since the last load, `tau` seconds ago. If not, exposure is added. If so,
the new Gamma has the first two moments of the exact posterior, which is a mixture: two floats are enough. If a key has been
quiet for long and then changes, its Gamma is blended towards what the prior would say, for habits change. If the row says
more (a version, the time of its last change), the update is exact.

`learning` calls these for the keys of one unit. Pure functions of arrays; they return new (a, b).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from cacheupdater.price.index import Doubles

    Pair: TypeAlias = "tuple[Doubles, Doubles]"

SHAPE = 0.35
"""a of the prior. Below 1: most keys change less often than the mean, a few far more often."""

SHAPE_MAX = 30.0
"""More certainty than 30 observed changes would make the past weigh more than the present."""

SHAPE_MIN = 0.02
"""Below it a key would need fifty prior lives of quiet to be believed static; logarithms stay finite."""

SURPRISE = 0.01
"""Share of changes after which a key has become another key: its rate is drawn anew."""

_J = np.arange(3.0)[:, None, None]
_TAU_MIN = 1e-3  # seconds between two loads; less would divide by nothing
_B_MAX = 1e12  # seconds of exposure: 30,000 years of quiet


def unchanged(a: Doubles, b: Doubles, tau: Doubles) -> Pair:
    """Exact: nothing happened for tau seconds."""
    return a, np.minimum(b + np.maximum(tau, 0.0), _B_MAX)


def changed(a: Doubles, b: Doubles, tau: Doubles, *, prior: Pair) -> Pair:
    """One or more changes within tau seconds; nobody knows how many, or when.

    The Gamma with the mean and variance of the exact posterior, whose density is Gamma(a, b) times 1 - e**(-rate tau);
    with z_j = 1 - (b / (b + tau)) ** (a + j) its moments are m = a/b z1/z0 and q = a (a + 1)/b**2 z2/z0.
    """
    shape, scale = np.stack((a, prior[0])), np.stack((b, prior[1]))
    z = -np.expm1(-(shape + _J) * np.log1p(np.maximum(tau, _TAU_MIN) / scale))
    rate = shape / scale
    mean = rate * z[1] / z[0]
    square = rate * (shape + 1.0) / scale * z[2] / z[0]
    variance = np.maximum(square - mean * mean, 1e-12 * mean * mean)
    return _surprised(mean * mean / variance, mean / variance, chance=z[0])


def counted(a: Doubles, b: Doubles, changes: Doubles, exposure: Doubles) -> Pair:
    """Exact: so many changes within so many seconds."""
    return _bounded(a + np.maximum(changes, 0.0), np.minimum(b + np.maximum(exposure, 0.0), _B_MAX))


def dated(a: Doubles, b: Doubles, changes: Doubles, exposure: Doubles, *, tau: Doubles, prior: Pair) -> Pair:
    """As `counted`, where the last load was tau seconds ago; but a change may show that a key is another by now."""
    shape, scale = np.stack((a, prior[0])), np.stack((b, prior[1]))
    chance = -np.expm1(-shape * np.log1p(np.maximum(tau, _TAU_MIN) / scale))
    learned = counted(shape, scale, changes, exposure)
    other = _surprised(*learned, chance=chance)
    quiet = changes <= 0.0
    return np.where(quiet, learned[0][0], other[0]), np.where(quiet, learned[1][0], other[1])


def _surprised(shape: Doubles, scale: Doubles, *, chance: Doubles) -> Pair:
    """Between what the key's past says (row 0) and what a newcomer's would (row 1), weighed by how likely a change was for
    each of them. In the long run one change in a hundred makes a key another key."""
    r = SURPRISE * chance[1] / (SURPRISE * chance[1] + (1.0 - SURPRISE) * chance[0])
    past, new = np.log((shape, scale)).swapaxes(0, 1)
    return _bounded(*np.exp(past + r * (new - past)))


def _bounded(a: Doubles, b: Doubles) -> Pair:
    """Certainty has a limit; the mean stays what it is."""
    kept = np.clip(a, SHAPE_MIN, SHAPE_MAX)
    return kept, np.clip(b * kept / a, 1e-6, _B_MAX)
