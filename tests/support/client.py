"""The Hub's real clients against a loopback Hub: in a clean process, as users run them, or in this one."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

from .loopback_hub import LoopbackHub

# goes before the code: the package looks as if it were not installed
WITHOUT_PACKAGE = """
import sys

class _Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "hf_recurrent":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, _Absent())
"""

# goes behind the code: leaves out the interpreter's end, where the threads of a pyarrow scanner that was streamed from
# may abort a process that has done all its work (https://github.com/apache/arrow/issues/39862)
LEAVE = "\nimport os, sys\nsys.stdout.flush()\nos._exit(0)\n"


def run_client(
    code: str,
    environment: Mapping[str, str],
    *arguments: str | os.PathLike,
    cwd: str | os.PathLike,
    timeout: float = 120,
    without_package: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Run `code` by this interpreter with exactly `environment`; `sys.argv[1:]` are the arguments."""
    source = WITHOUT_PACKAGE + code if without_package else code
    command = [sys.executable, "-c", source + LEAVE, *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=timeout, env=dict(environment), check=False, cwd=cwd
    )


def must_succeed(done: subprocess.CompletedProcess[str]) -> str:
    """The output of a process that succeeded; else its stderr is the failure's message."""
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@contextmanager
def client_in_this_process(hub: LoopbackHub, folder: str | os.PathLike) -> Iterator[None]:
    """Let huggingface_hub in this process speak to `hub`, with its caches under `folder`.

    It reads its environment when it is first imported, so its constants are replaced. transformers, datasets and
    evaluate have copies of them: those need a process of their own.
    """
    from huggingface_hub import close_session, constants

    replaced = {
        "ENDPOINT": hub.endpoint,
        "HUGGINGFACE_CO_URL_TEMPLATE": hub.endpoint + "/{repo_id}/resolve/{revision}/{filename}",
        "HF_HUB_DISABLE_XET": True,
        "HF_HUB_DISABLE_TELEMETRY": True,
        "HF_HUB_CACHE": str(Path(folder) / "hub"),
        "HF_TOKEN_PATH": str(Path(folder) / "token"),
        "AGENT_HARNESSES_PATH": str(Path(folder) / "harnesses.json"),
    }
    with mock.patch.multiple(constants, **replaced):
        yield
    # connections that are kept alive
    close_session()
