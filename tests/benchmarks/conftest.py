import pytest
from small_export import CONFIGS, PARAMS


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


@pytest.fixture(scope="session")
def exported(tmp_path_factory):
    """A small export of ListOps, to be read only, in a folder whose cache lies beside it."""
    from hf_recurrent.benchmarks.export import export_benchmark

    base = tmp_path_factory.mktemp("export")
    return export_benchmark("listops", base / "listops", configs=CONFIGS, params=PARAMS, cache_dir=base / "cache")
