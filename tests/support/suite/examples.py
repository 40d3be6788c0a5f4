"""Generated examples on a machine that is slow, or busy: no test of the suite fails for its pace."""

from hypothesis import HealthCheck, settings

# of hypothesis' own limits, both are times of the clock: 200 ms for an example, and 1 s for making ten of them
settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")
