"""How many random examples a property is tried on."""

from hypothesis import HealthCheck, settings

USUAL = settings.default.max_examples
# a shared machine is no stopwatch
settings.register_profile("usual", deadline=None)
settings.register_profile("nightly", max_examples=1000, deadline=None, suppress_health_check=list(HealthCheck))
settings.load_profile("usual")


def few(max_examples: int) -> settings:
    """`max_examples`, the same ones each time; in `make nightly` as many random ones as its profile has."""
    if settings.default.max_examples > USUAL:
        return settings()
    return settings(max_examples=max_examples, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
