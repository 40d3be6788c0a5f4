"""Generated examples on a machine that is slow, or busy: no test of the suite fails for its pace."""

from importlib.util import find_spec

if find_spec("hypothesis"):  # not where the base install runs the tests of the client, which generate nothing
    from hypothesis import HealthCheck, settings

    # of hypothesis' own limits, both are times of the clock: 200 ms for an example, and 1 s for making ten of them
    settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("suite")
