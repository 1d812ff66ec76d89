"""`hf-recurrent serve`: a page on this machine that looks into any input of a checkpoint."""

from typing import Annotated

import typer

from . import options
from .console import out, quiet_libraries


def serve(
    checkpoint: Annotated[
        str, typer.Argument(callback=options.a_place, help="Folder or Hub id of a classifier or causal language model.")
    ],
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen at; 0 takes any that is free.")] = 7860,
    revision: options.CheckpointRevision = None,
    device: options.Device = None,
) -> None:
    """Serve a page on this machine that looks inside of any input, step by step, until Ctrl-C.

    Type an input and slide through depth: which tokens are alive, what each attends to, how the answer changes.

    The page also says after which step each rule would have stopped: learned halting, every exit criterion, the probe.

    Only this machine can open it. `cards build` makes such a page of a few stored inputs.
    """
    import torch

    from ..hub.gallery.live_server import LiveServer
    from ..tasks.checkpoints import load_checkpoint

    quiet_libraries()
    # one short text gains nothing by more, and on a busy machine waits for them
    torch.set_num_threads(1)
    loaded = load_checkpoint(checkpoint, device, revision)
    with LiveServer(checkpoint, loaded.model, loaded.tokenizer, port) as server:
        out.print(f"{checkpoint} is at {server.address} (Ctrl-C ends it)", markup=False, soft_wrap=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return
