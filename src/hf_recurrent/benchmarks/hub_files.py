"""Files of data sets on the Hub."""

from collections.abc import Sequence
from pathlib import Path


def snapshot(dataset: str, revision: str, patterns: Sequence[str]) -> Path:
    """The folder of a data set's files that match `patterns`; what is not here yet is downloaded.

    Raises:
        ValueError: the data set cannot be had.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError

    try:
        return Path(snapshot_download(dataset, repo_type="dataset", revision=revision, allow_patterns=list(patterns)))
    # its bases are OSError and the HTTP client's own error, which a connection that breaks raises
    except HfHubHTTPError.__bases__ as error:
        raise ValueError(
            f"dataset={dataset!r}, revision={revision!r} cannot be had from the Hub: {error}\nCheck both and the "
            "network, or give data_dir"
        ) from error
