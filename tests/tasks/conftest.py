import pytest

from support.own_data import data_cache, write_file  # noqa: F401


@pytest.fixture
def write(tmp_path):
    """Writes a file below a folder of this test -> its path."""
    return lambda name, content, encoding="utf-8": write_file(tmp_path / name, content, encoding)
