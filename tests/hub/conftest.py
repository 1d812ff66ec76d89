import shutil
from pathlib import Path

import pytest
from committed_cards import copy_cards
from huggingface_hub import HfApi
from pushing import README, RESULTS, WEIGHTS

from hf_recurrent.hub.gallery import read_gallery
from support.checkpoints import GUT_LISTOPS
from support.client import client_in_this_process
from support.loopback_hub import LoopbackHub
from support.results import FIGURE, figure


@pytest.fixture(scope="session")
def committed(tmp_path_factory):
    """A gallery of the committed classifiers, to read only."""
    return copy_cards(tmp_path_factory.mktemp("committed") / "cards")


@pytest.fixture(scope="session")
def entries(committed):
    return read_gallery(committed)


@pytest.fixture
def picture(tmp_path):
    """A figure, which is in the test's folder."""
    (tmp_path / "assets").mkdir()
    (tmp_path / "assets" / "steps.png").write_bytes(FIGURE)
    return figure()


@pytest.fixture
def run_folder(tmp_path):
    """A finished run's folder to publish or to break."""
    return Path(shutil.copytree(GUT_LISTOPS, tmp_path / "run"))


@pytest.fixture
def hub(tmp_path):
    """A loopback Hub that `huggingface_hub` in this process speaks to."""
    with LoopbackHub(page_size=5) as hub, client_in_this_process(hub, tmp_path):
        yield hub
        assert hub.unknown == []


@pytest.fixture
def api(hub):
    return HfApi(hub.endpoint, token=hub.token)


@pytest.fixture
def repository(hub, api):
    api.create_repo("org/x")
    return hub.repository("org/x")


@pytest.fixture
def folder(tmp_path):
    """Text, a large file and a file in a subfolder."""
    files = {
        "README.md": README.encode(),
        "results.json": RESULTS,
        "model.safetensors": WEIGHTS,
        "assets/a.png": b"\x89PNG\0" + bytes(50),
    }
    for path, content in files.items():
        (tmp_path / "folder" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "folder" / path).write_bytes(content)
    return tmp_path / "folder"
