import importlib.util

import pytest
import yaml
from tiny_run import (
    CHOICE_SCRIPT,
    CLM_SCRIPT,
    DOCUMENT_SCRIPT,
    MASKED_SCRIPT,
    QA_SCRIPT,
    SCRIPT,
    SEQ2SEQ_SCRIPT,
    TINY,
    TOKEN_SCRIPT,
)


def load_script(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def script():
    """The module `training/run_glue_style.py`."""
    return load_script(SCRIPT)


@pytest.fixture(scope="session")
def clm_script():
    """The module `training/run_clm.py`."""
    return load_script(CLM_SCRIPT)


@pytest.fixture(scope="session")
def document_script():
    """The module `training/run_clm_accelerate.py`."""
    return load_script(DOCUMENT_SCRIPT)


@pytest.fixture(scope="session")
def seq2seq_script():
    """The module `training/run_seq2seq.py`."""
    return load_script(SEQ2SEQ_SCRIPT)


@pytest.fixture(scope="session")
def token_script():
    """The module `training/run_token_classification.py`."""
    return load_script(TOKEN_SCRIPT)


@pytest.fixture(scope="session")
def masked_script():
    """The module `training/run_mlm.py`."""
    return load_script(MASKED_SCRIPT)


@pytest.fixture(scope="session")
def qa_script():
    """The module `training/run_qa.py`."""
    return load_script(QA_SCRIPT)


@pytest.fixture(scope="session")
def choice_script():
    """The module `training/run_multiple_choice.py`."""
    return load_script(CHOICE_SCRIPT)


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
