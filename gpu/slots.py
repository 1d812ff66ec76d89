"""Pools of slots at different depths, captured as CUDA graphs: answers, kernels and times, beside what is expected.

Expected are estimates for an H200 in bfloat16: a pool takes `r + 0.03` of the time of all steps, and one batch that
fills it, whose rows become fewer, 0.5 with 64 rows and 0.35 with 512 at width 512; a compiled depth step of GUT at most
16 kernels; and Ouro-1.4B's form writes 170 tokens a second alone, 240 compiled, and 11,000 in 64 slots;
23,000 where tokens stop after two of four steps.
"""

import functools
from collections.abc import Iterator

import torch

from hf_recurrent.deploy import ClassifierPool, DecodingEngine
from hf_recurrent.deploy.decoding import BY_STEP
from perf import ouro
from perf.core import Table, measure
from perf.models import build, infer, mixed_batch, tune_depth
from perf.work import device_work

from .checks import Check, Setting
from .correct import TOLERANCE, on
from .fast import halting_options, looped_model, options_of
from .graphs import alone, replayed

from support.compare import assert_close  # isort: skip - found by the import above
from support.families import BY_NAME, LANGUAGE_BY_NAME, make_batch, make_language_model, make_model  # isort: skip

NEW = 6
BATCH = {(512, 64): 0.5, (512, 512): 0.35}
EXPECTED = {(1, False, 4): 170, (1, True, 4): 240, (64, True, 4): 11_000, (64, True, 2): 23_000}


def answers(setting: Setting, name: str, compiled: bool) -> list[Table]:
    """Logits and steps of a pool against those of the model."""
    batch = on(setting.device, make_batch(BY_NAME[name], rows=40, length=20))
    del batch["labels"]
    with replayed(setting):
        model = make_model(BY_NAME[name]).to(setting.device)
        expected, found = infer(model, batch), ClassifierPool(model, rows=8, graph=True, compiled=compiled)(**batch)
    assert_close(found.logits, expected.logits, TOLERANCE)
    steps = expected.ponder_steps
    assert torch.equal(found.ponder_steps, steps if steps.dim() == 1 else steps.amax(-1))
    return []


def texts(setting: Setting, name: str, compiled: bool) -> list[Table]:
    """Greedy texts of the engine against those of `generate`."""
    with replayed(setting):
        model = make_language_model(LANGUAGE_BY_NAME[name]).to(setting.device)
        prompts = [torch.arange(4, 5 + number, device=setting.device) for number in range(9)]
        found = DecodingEngine(model, 4, 16, graph=True, compiled=compiled).generate(prompts, max_new_tokens=NEW)
        for prompt, text in zip(prompts, found, strict=True):
            expected = model.generate(prompt[None], max_new_tokens=NEW, do_sample=False)[0]
            assert torch.equal(text, expected), f"{text.tolist()} instead of {expected.tolist()}"
    return []


def pool_over_all_steps(setting: Setting, width: int, rows: int, compiled: bool, single: bool = False) -> list[Table]:
    """Milliseconds of 1,000 sequences of 64 tokens, halted at 0.3 of 20 steps on average and never.

    Args:
        single: whether there are no more sequences than rows.
    """
    args, length = halting_options(setting, width), 8 if setting.toy else 64
    number = rows if single else 8 if setting.toy else 4_096
    with replayed(setting):
        model = build("gut", args).to(setting.device)
        batch = mixed_batch(args, number, length, shortest=length)
        share = tune_depth(model, {name: value[:256] for name, value in batch.items()}, 0.4 if setting.toy else 0.3)
        make = functools.partial(ClassifierPool, model, rows, graph=True, compiled=compiled)
        pools = {"halted": make(), "all steps": make(halting_threshold=1.0)}
        timings = measure({name: functools.partial(pool, **batch) for name, pool in pools.items()}, args)
        eager = ClassifierPool(model, rows, 1, graph=False, compiled=compiled)
        eager(**{name: value[:rows] for name, value in batch.items()})
        kernels = None if setting.device == "cpu" else device_work(eager.rows_for(length, rows).run)[0]
    ratio = timings["halted"].ratio(timings["all steps"])[0]
    row = {"width": width, "rows": rows, "of": number, "compiled": compiled, "r": share, "kernels a step": kernels}
    row |= {f"{name} ms": 1e6 * timing.median / number for name, timing in timings.items()}
    expected = share + 0.03 if not single else BATCH.get((width, rows))
    return [Table("Pools of GUT, 1,000 sequences", [row | {"of all steps": ratio, "expected": expected}])]


@torch.no_grad()
def decoded(setting: Setting, slots: int, compiled: bool) -> list[Table]:
    """New tokens a second, where all steps are taken and where tokens stop after about two of four."""
    model, new = looped_model(setting), 4 if setting.toy else 64
    args, found = options_of(setting, "ouro"), []
    args.repeats = 2
    prompts = torch.randint(4, model.config.vocab_size, (2 * slots, 8 if setting.toy else 128), device=setting.device)
    halfway = ouro.threshold_for(model, {"input_ids": prompts[:8]}, 2.0)
    with replayed(setting):
        for steps, threshold in ((4, 1.0), (2, halfway)):
            options = {"graph": True, "compiled": compiled, "halting_threshold": threshold}
            engine = DecodingEngine(model, slots, prompts.shape[1] + new, **options)
            write = functools.partial(engine.generate, prompts, max_new_tokens=new, eos_token_id=[])
            seconds, before = measure({"": write}, args)[""].median, engine.iterations
            write()
            taken = (engine.iterations - before) * slots / (len(prompts) * new)
            iteration = measure({"": next(iter(engine.runs.values()))}, args)[""].median
            row = {"slots": slots, "compiled": compiled, "iterations a token": taken}
            row |= {"tokens/s": len(prompts) * new / seconds, "once read": slots / (iteration * taken)}
            found.append(row | {"expected": EXPECTED.get((slots, compiled, steps))})
            # one engine's memory at a time
            del engine, write
    return [Table("Decoding in slots of Ouro-1.4B's form, prompts of 128 tokens", found)]


def checks(setting: Setting) -> Iterator[Check]:
    """Compiled ones come last: compiling takes minutes."""
    for compiled in (False,) if setting.toy else (False, True):
        kind = ", compiled" if compiled else ""
        for width in (16,) if setting.toy else (512,) if compiled else (256, 512, 1024):
            for rows in (2,) if setting.toy else (64, 512):
                for number in ("", "one batch in a "):
                    check = functools.partial(pool_over_all_steps, setting, width, rows, compiled, bool(number))
                    yield Check(f"{number}pool of {rows} rows, width {width}{kind}", functools.partial(alone, check))
        for slots in (2,) if setting.toy else (1, 64):
            check = functools.partial(decoded, setting, slots, compiled)
            yield Check(f"decoding in {slots} slots{kind}", functools.partial(alone, check))
        for name in ("gut", "ndr") if compiled else ("gut", "ut", "ndr", "albert_recurrent"):
            check = functools.partial(answers, setting, name, compiled)
            yield Check(f"answers of {name}{kind}", functools.partial(alone, check))
        for name in ("gut",) if compiled else (*BY_STEP, "tlb", "gutlb"):
            check = functools.partial(texts, setting, name, compiled)
            yield Check(f"texts of {name}{kind}", functools.partial(alone, check))
