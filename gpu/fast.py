"""Times, launches and memory in bfloat16: the scripts of perf/ on the GPU, and what only a GPU can be asked."""

import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from hf_recurrent import OuroRecurrentConfig, OuroRecurrentForCausalLM
from hf_recurrent.models.ndr.kernels import geometric_attention_triton, kernel_available
from perf import core, counted, geometric, ouro
from perf import halting as halted
from perf.core import MEBIBYTE, Table, measure, peak_bytes
from perf.work import counted as work_of
from perf.work import device_waits, device_work

from .checks import Check, NotHereError, Setting
from .device import GIB, free_bytes

WIDTHS, BATCHES = (128, 256, 512, 1024), (32, 128, 512)
LENGTHS = tuple(2**power for power in range(7, 14))
# tensors of a score for each query, key and head that written-out attention has at once, as float32, with gradients
EAGER_SCORES = 12


def options_of(setting: Setting, script: str, *options: Any) -> Any:
    """The options of a script of perf/ for the device, in bfloat16 there."""
    dtype = "float32" if setting.device == "cpu" else "bfloat16"
    place = ["--device", setting.device, "--dtype", dtype, "--repeats", "2" if setting.toy else "5"]
    return core.parse(script, [*place, *map(str, options)])


def halting_options(setting: Setting, width: int) -> Any:
    """The options of perf/halting.py for one model, of a width."""
    args = options_of(
        setting, "halting", *(("--num-steps", 3, "--num-heads", 2) if setting.toy else ("--num-heads", 8))
    )
    args.hidden_size = 16 if setting.toy else width
    return args


def halted_over_ideal(setting: Setting, architecture: str, width: int) -> list[Table]:
    sizes = ("--num-steps", 3, "--length", 8) if setting.toy else ("--num-steps", 20, "--length", 64)
    rows = []
    for batch in (4,) if setting.toy else BATCHES:
        chosen = ("--architectures", architecture, "--hidden-sizes", width, "--depths", 0.4 if setting.toy else 0.3)
        args = options_of(setting, "halting", *chosen, "--batch-size", batch, *sizes)
        (table,) = halted.tables(args)
        rows += [{"batch": batch, **row} for row in table.rows]
    return [Table(f"Halted {architecture} of width {width}, forward", rows)]


def halting(setting: Setting) -> Iterator[Check]:
    for architecture in ("gut", "ut"):
        for width in WIDTHS[:1] if setting.toy else WIDTHS:
            check = functools.partial(halted_over_ideal, setting, architecture, width)
            yield Check(f"halted {architecture} of width {width}", check)


def looped_config(toy: bool) -> OuroRecurrentConfig:
    """That of Ouro-1.4B, or in a rehearsal one of the same form."""
    toy_sizes = {"hidden_size": 32, "num_attention_heads": 2, "layers_per_step": 2, "vocab_size": 64}
    return OuroRecurrentConfig(skipped_steps="last", **(toy_sizes if toy else {}))


def looped_model(setting: Setting) -> OuroRecurrentForCausalLM:
    config = looped_config(setting.toy)
    with torch.device("meta"):
        needed = 2 * OuroRecurrentForCausalLM(config).num_parameters()
    free = free_bytes(setting.device)
    # beside the weights, those of a cache and of logits
    if 1.5 * needed > free:
        raise NotHereError(
            f"{1.5 * needed / GIB:.1f} GiB are needed and {free / GIB:.1f} GiB are free; "
            f"layers_per_step={int(config.layers_per_step * free / (1.5 * needed))} would fit"
        )
    torch.manual_seed(0)
    dtype = torch.float32 if setting.device == "cpu" else torch.bfloat16
    with torch.device(setting.device):
        model = OuroRecurrentForCausalLM(config).to(dtype).eval()
    ouro.tell_apart(model)
    return model


@torch.no_grad()
def looped_decoding(setting: Setting, rows: int) -> list[Table]:
    """New tokens a second where all steps are taken, and where tokens stop after about two of four."""
    model, new = looped_model(setting), 4 if setting.toy else 32
    ids = torch.randint(4, model.config.vocab_size, (rows, 8 if setting.toy else 128), device=setting.device)
    batch = {"input_ids": ids}
    args = options_of(setting, "ouro")
    # a text takes about three seconds
    args.repeats = 2
    thresholds = {"4 steps": 1.0, "about 2 steps": ouro.threshold_for(model, batch, 2.0)}

    def generate(name: str) -> Any:
        return model.generate(
            **batch,
            halting_threshold=thresholds[name],
            max_new_tokens=new,
            do_sample=False,
            eos_token_id=None,
            return_dict_in_generate=True,
        )

    timings = measure({name: functools.partial(generate, name) for name in thresholds}, args)
    found = [
        {
            "rows": rows,
            "exit": name,
            "steps of a token": generate(name).ponder_steps.float().mean().item(),
            "tokens/s": rows * new / timing.median,
            "ratio": timing.ratio(timings["4 steps"])[0],
            "peak MiB": peak_bytes(functools.partial(generate, name), setting.device) / MEBIBYTE,
        }
        for name, timing in timings.items()
    ]
    return [Table(f"Decoding of {model.num_parameters() / 1e9:.2f} billion random weights", found)]


def looped(setting: Setting) -> Iterator[Check]:
    for rows in (2,) if setting.toy else (1, 16, 64):
        yield Check(f"decoding {rows} texts", functools.partial(looped_decoding, setting, rows))


def step_costs(setting: Setting, architecture: str) -> list[Table]:
    sizes = ("--batch-size", 4, "--length", 8, "--new-tokens", 2) if setting.toy else ("--batch-size", 64)
    args = options_of(setting, "counted", *sizes)
    rows = []
    for mode, model, step, batch in counted.calls_of(architecture, args):
        call = functools.partial(step, model, batch)
        call()
        work = work_of(model, call)
        on_gpu = setting.device != "cpu"
        rows.append(
            {
                "architecture": architecture,
                "mode": mode,
                "operators": work.calls,
                "launches": device_work(call)[0] if on_gpu else None,
                "waits": work.waits,
                "waits as CUDA tells": device_waits(call) if on_gpu else None,
                "peak MiB": peak_bytes(call, setting.device) / MEBIBYTE,
            }
        )
    return [Table("Launches, waits and memory of a forward pass, a training step and four decoded tokens", rows)]


def steps(setting: Setting) -> Iterator[Check]:
    for architecture in counted.ARCHITECTURES[:: 4 if setting.toy else 1]:
        yield Check(f"a step of {architecture}", functools.partial(step_costs, setting, architecture))


class Heads(NamedTuple):
    """Rows of a batch, heads and their width."""

    rows: int = 1
    heads: int = 16
    head_dim: int = 64


# one long row; a batch of the recipe `cpu/listops_depth_ndr`, and its length
LONG, SHORT, SHORT_LENGTH = Heads(), Heads(512, 8, 16), 48


def kernel_over_eager(setting: Setting, length: int, dtype: str, sizes: Heads = LONG) -> list[Table]:
    if not kernel_available(setting.device):
        raise NotHereError(f"the kernel does not run on {setting.device}")
    args = options_of(setting, "geometric")
    args.dtype = dtype
    rows, heads, head_dim = Heads(1, 2, 8) if setting.toy else sizes
    inputs = geometric.make_inputs((rows, heads, length, head_dim), args)
    ways = {"kernel": functools.partial(geometric.step, geometric_attention_triton, inputs)}
    needed = EAGER_SCORES * 4 * rows * heads * length**2
    if needed < free_bytes(setting.device):
        ways["eager"] = functools.partial(geometric.step, geometric.eager_attention, inputs)
    timings = measure(ways, args)
    row: dict[str, Any] = {"length": length, "dtype": dtype, "rows": rows, "heads": heads, "head dim": head_dim}
    for name, way in ways.items():
        row[f"{name} ms"] = 1e3 * timings[name].median
        row[f"{name} peak MiB"] = peak_bytes(way, setting.device) / MEBIBYTE
    row["kernel over eager"] = timings["kernel"].ratio(timings["eager"])[0] if "eager" in ways else None
    note = f"Written-out attention of {length:,} tokens would need about {needed / GIB:.0f} GiB."
    title = f"Fused geometric attention, {dtype}, {'many short rows, ' if rows > 1 else ''}forward and backward"
    return [Table(title, [row], "" if "eager" in ways else note)]


def lengths(setting: Setting) -> Iterator[Check]:
    for dtype in ("float32",) if setting.device == "cpu" else ("bfloat16", "float32"):
        for length in (8, 16) if setting.toy else LENGTHS:
            check = functools.partial(kernel_over_eager, setting, length, dtype)
            yield Check(f"{length:,} tokens, {dtype}", check)
        check = functools.partial(kernel_over_eager, setting, SHORT_LENGTH, dtype, SHORT)
        yield Check(f"{SHORT.rows} rows of {SHORT_LENGTH} tokens, {dtype}", check)
