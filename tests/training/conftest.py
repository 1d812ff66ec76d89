import pytest
from tiny_run import TINY, write_recipe

from support.own_data import data_cache, write_file  # noqa: F401


@pytest.fixture
def recipe(tmp_path):
    """Writes the tiny recipe with changes, of which None removes a key -> its path."""
    return lambda **changes: write_recipe(tmp_path / "tiny.yaml", {**TINY, **changes})


@pytest.fixture
def write(tmp_path):
    """Writes a file below a folder of this test -> its path."""
    return lambda name, content: write_file(tmp_path / name, content)
