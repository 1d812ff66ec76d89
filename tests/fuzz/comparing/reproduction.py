"""A case and a comparison as a few lines of Python that show their difference."""

import inspect

import torch

from fuzz.comparing.beam_search import beam_search
from fuzz.comparing.cases import HALTING_SPREAD, Case
from fuzz.comparing.properties import Comparison
from fuzz.comparing.reading import sources
from fuzz.comparing.runs import Run
from hf_recurrent import ARCHITECTURES

RECORDED = ("logits", "last_hidden_state", "pooler_output", "ponder_steps", "ponder_cost", "loss", "scores")
HEADER = """import torch
from hf_recurrent import {config}, {model}
from hf_recurrent.models.engine import packed_rows

packed_rows.MIN_PRODUCTS_TO_PACK = 0
torch.manual_seed({seed})
model = {model}({config}({fields})).eval()
for name, parameter in model.named_parameters():
    parameter.data.add_(({halting} if "halting_head" in name else {spread}) * torch.randn_like(parameter))
{precise}options = {options}
"""
GENERATION = """batch = {{key: batch[key] for key in ("input_ids", "attention_mask") if key in batch}}
model.generation_config.eos_token_id = None
generated = model.generate(**batch, max_new_tokens={run.new_tokens}, num_beams={run.beams},
    num_return_sequences={run.beams}, do_sample=False, pad_token_id=0, output_logits=True, output_scores=True,
    return_dict_in_generate=True, {options})
{name} = {result}
"""
GENERATED = {
    False: '{"logits": torch.stack(generated.logits, 1)}',
    True: '{"scores": generated.sequences_scores, "ponder_steps": generated.get("ponder_steps")}',
}
READING = """{name} = Reading(model, batch, options, {new_mask}, ("logits", "last_hidden_state", "ponder_steps"))
for width, detour in {steps}:
    if detour:
        globals()[detour.kind]({name}, detour)
    {name}.read(width)
{name} = {{"rows": torch.tensor({name}.rows), **{name}.joined()}}
"""


def reproduction(case: Case, comparison: Comparison | None, message: str) -> str:
    """The program, without imports of this suite."""
    prefix = ARCHITECTURES[case.architecture].prefix
    fields = ", ".join(f"{name}={value!r}" for name, value in case.fields.items())
    text = HEADER.format(
        config=f"{prefix}Config",
        model=prefix + case.head,
        seed=case.seed,
        fields=fields,
        spread=case.spread,
        halting=HALTING_SPREAD,
        precise="model.double()\n" if case.precise else "",
        options=case.options,
    )
    if comparison is None:
        return f"{text}# {message}\n"
    for name, run in (("expected", comparison.expected), ("actual", comparison.actual)):
        text += program(name, run, case)
    return f"{text}{shown(comparison)}# {message}\n"


def shown(comparison: Comparison) -> str:
    if "gradients" in (comparison.actual.kind, comparison.expected.kind):
        return "print(max((expected[name] - actual[name]).abs().max() for name in expected))\n"
    rows = "rows {} of the batch are rows {} of the other\n"
    return (
        f"# {rows.format(list(comparison.actual.batch.numbers), list(comparison.expected.batch.numbers))}"
        f"for key in {RECORDED}:\n"
        "    print(key, expected.get(key), actual.get(key), sep='\\n')\n"
    )


def program(name: str, run: Run, case: Case) -> str:
    """Lines that leave the result of a run in the variable `name`."""
    before, after = prepared(run)
    return before + call(name, run, case) + after


def prepared(run: Run) -> tuple[str, str]:
    """Lines before and after the call."""
    before = [f"model.config.{field} = {value!r}" for field, value in run.fields.items()]
    if run.attention:
        before.append(f"model.set_attn_implementation({run.attention!r})")
    if run.experts:
        before.append(f"model.set_experts_implementation({run.experts!r})")
    if run.reload or run.half == "loaded":
        dtype = str(run.half_type) if run.half else "model.dtype"
        before += [
            "model.save_pretrained('saved')",
            f"model = type(model).from_pretrained('saved', dtype={dtype}).eval()",
        ]
    if run.training:
        before.append("model.train()")
    if run.checkpointing:
        before.append("model.gradient_checkpointing_enable({'use_reentrant': False})")
    after = ["model.eval()"] if run.training else []
    return "".join(f"{line}\n" for line in before), "".join(f"{line}\n" for line in after)


def literal(value: torch.Tensor) -> str:
    return f"torch.tensor({value.tolist()})"


def call(name: str, run: Run, case: Case) -> str:
    arguments = "".join(f"    {key}={literal(value)},\n" for key, value in run.batch.arguments.items())
    batch = f"batch = dict(\n{arguments})\n"
    options = f"**{{**options, **{run.options}}}" if run.options else "**options"
    if run.kind == "gradients":
        return (
            f"{batch}model.zero_grad()\ntorch.manual_seed({case.seed})\noutput = model(**batch, {options})\n"
            "(output.loss if output.aux_loss is None else output.loss + output.aux_loss).backward()\n"
            f"{name} = {{key: p.grad.clone() for key, p in model.named_parameters() if p.grad is not None}}\n"
        )
    if run.kind == "generate":
        return batch + GENERATION.format(name=name, run=run, result=GENERATED[run.beams > 1], options=options)
    if run.kind == "search":
        found = f"beam_search(model, batch, options, {run.beams}, {run.new_tokens})"
        return f"{batch}{inspect.getsource(beam_search)}\n\n{name} = {found}\n"
    if run.kind == "pieces":
        return batch + reading(name, run)
    embedded = "batch['inputs_embeds'] = model.get_input_embeddings()(batch.pop('input_ids'))\n" if run.embedded else ""
    under = "torch.no_grad()" + (f", torch.autocast('cpu', {run.half_type})" if run.half == "autocast" else "")
    return f"{batch}{embedded}with {under}:\n    {name} = model(**batch, {options})\n"


def reading(name: str, run: Run) -> str:
    used = f"import copy\nfrom typing import NamedTuple\n\n\n{sources(run.detours)}\n\n"
    steps = list(zip(run.cuts, run.detours or [None] * len(run.cuts), strict=True))
    return used + READING.format(name=name, new_mask=run.new_mask, steps=steps)
