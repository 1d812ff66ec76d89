"""A Hub on 127.0.0.1 that speaks enough of the Hugging Face Hub's protocol for its real clients, for tests.

It keeps models and datasets in memory, with commits, branches, tags and large files (the basic LFS transfer),
and is strict where the real Hub is known to be: tokens and namespaces, names and paths, hashes, card metadata, parent
commits. It fails on demand. `LoopbackHub` is all that tests need; `support.client` runs code against it.

What it does not model, so that no test here says anything about it: Xet storage (clients run with
HF_HUB_DISABLE_XET=1), multipart LFS uploads, git over HTTP or SSH, pull requests and discussions, gated and disabled
repositories, rate limits, storage quotas, redirects (to a CDN, or from renamed repositories and other spellings of a
name), compressed answers, `.gitignore` on the server, moving or duplicating repositories and files between
them, squashing history, fine-grained tokens and organisation roles, malware scans, searching and listing repositories,
collections, likes and downloads, spaces, and the dataset viewer with its parquet conversion. Its rules for
cards follow documentation and error messages of the real Hub, whose schema is not public.

It is a reconstruction from the clients' source and from what is known of the service. That something works here is no
proof that it works on the real Hub; that it fails here is good reason to expect that it fails there.
"""

from .faults import Fault
from .repository import Blob, Commit, Repository
from .server import Call, LoopbackHub

__all__ = ["Blob", "Call", "Commit", "Fault", "LoopbackHub", "Repository"]
