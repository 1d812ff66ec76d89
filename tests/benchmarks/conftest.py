import pytest
from hypothesis import settings

# a shared machine is no stopwatch
settings.register_profile("no_deadline", deadline=None)
settings.load_profile("no_deadline")


@pytest.fixture
def cache(tmp_path):
    """A cache folder that no other test has seen: `datasets` caches are easily stale."""
    return tmp_path / "cache"


@pytest.fixture(autouse=True)
def _quiet():
    import datasets

    datasets.disable_progress_bars()
    yield
    datasets.enable_progress_bars()
