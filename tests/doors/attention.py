"""Values of `attn_implementation`, each beside the eager one."""

import functools

from support import flash_attention
from support.compare import assert_close

from .door import Room
from .models import batch_for, compute, live, refused

ROOM = Room("Attention")
NO_ATTENTION = refused("a recurrent network has no attention", "rnn")
GEOMETRIC = refused("geometric attention", "ndr")


def enter_attention(implementation, architecture, folder):
    model, batch = live(architecture), batch_for(architecture)
    model.set_attn_implementation("eager")
    expected = compute(model, batch).logits
    model.set_attn_implementation(implementation)
    assert model.config._attn_implementation == implementation
    assert_close(compute(model, batch).logits, expected, 1e-5)


for implementation, refusals in {
    "eager": {},
    "sdpa": NO_ATTENTION | GEOMETRIC,
    "flex_attention": NO_ATTENTION | GEOMETRIC,
    "paged|sdpa": refused("which is for continuous batching") | GEOMETRIC,
}.items():
    ROOM.door(f"attn_implementation={implementation!r}", refusals)(functools.partial(enter_attention, implementation))


KERNEL = "kernels-community/flash-attn2"
NO_KERNEL = NO_ATTENTION | refused("learned position biases", "block_recurrent", "sut")


@ROOM.door(f"attn_implementation={KERNEL!r}", NO_KERNEL | refused("scores of geometric attention", "ndr"))
def enter_kernel_of_the_hub(architecture, folder):
    """The name goes to transformers' loader, of whose kernel plain torch takes the place."""
    model, batch = live(architecture), batch_for(architecture)
    expected = compute(model, batch).logits
    with flash_attention.on_the_hub() as get_kernel:
        model.set_attn_implementation(KERNEL)
        assert [call.args[0] for call in get_kernel.mock_calls] == [KERNEL]
        assert_close(compute(model, batch).logits, expected, 1e-5)
