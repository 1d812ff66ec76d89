import importlib.util

import pytest
import yaml
from tiny_run import SCRIPT, TINY


@pytest.fixture(scope="session")
def script():
    """The module `training/run_glue_style.py`."""
    spec = importlib.util.spec_from_file_location("run_glue_style", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def write_recipe(tmp_path):
    """Writes the tiny recipe with changes; None removes a key."""

    def write(**changes):
        recipe = {key: value for key, value in {**TINY, **changes}.items() if value is not None}
        path = tmp_path / "tiny.yaml"
        path.write_text(yaml.safe_dump(recipe))
        return str(path)

    return write


@pytest.fixture(scope="session", autouse=True)
def data_cache(tmp_path_factory):
    """Generated rows of these tests stay out of the user's cache."""
    import datasets

    before = datasets.config.HF_DATASETS_CACHE
    datasets.config.HF_DATASETS_CACHE = tmp_path_factory.mktemp("datasets")
    yield
    datasets.config.HF_DATASETS_CACHE = before
