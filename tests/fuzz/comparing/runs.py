"""Ways to run a model on a batch, and their results row by row.

Shapes: B rows, S tokens.
"""

import contextlib
import dataclasses
import tempfile
from typing import Literal, NamedTuple

import torch

from fuzz.comparing.batches import Batch
from fuzz.comparing.beam_search import beam_search
from fuzz.comparing.cases import SINGLE, Case, computing_in
from fuzz.comparing.reading import DETOURS, Detour, Reading
from support import flash_attention


@dataclasses.dataclass(frozen=True)
class Run:
    """A call of a model, or several.

    Attributes:
        kind: "forward"; "pieces", with a cache; "generate"; "search", beam search without
            a cache; or "gradients" of the loss.
        options: arguments besides the batch's and the case's.
        fields: config fields that are changed after loading.
        attention, experts: implementations, None for the default.
        reload: whether the model is saved and loaded.
        half: how much is computed in `half_type`: all that is "loaded" so, or by "autocast".
        embedded: whether embeddings are passed in the place of ids.
        training, checkpointing: of gradients.
        cuts: numbers of columns of the pieces.
        detours: what is done with the cache before each piece.
        new_mask: whether a piece's mask is of its own columns only.
        new_tokens, beams: numbers of tokens to generate, and of beams.
        noise: standard deviation of a relative change of all parameters.
    """

    batch: Batch
    kind: Literal["forward", "pieces", "generate", "search", "gradients"] = "forward"
    options: dict = dataclasses.field(default_factory=dict)
    fields: dict = dataclasses.field(default_factory=dict)
    attention: str | None = None
    experts: str | None = None
    reload: bool = False
    half: Literal["loaded", "autocast"] | None = None
    half_type: torch.dtype = torch.bfloat16
    embedded: bool = False
    training: bool = False
    checkpointing: bool = False
    cuts: tuple[int, ...] = ()
    detours: tuple[Detour | None, ...] = ()
    new_mask: bool = False
    new_tokens: int = 0
    beams: int = 1
    noise: float = 0.0

    def but(self, **changes) -> "Run":
        return dataclasses.replace(self, **changes)


class RowResult(NamedTuple):
    """What a row got: values of each of its tokens, and those of the row as a whole."""

    tokens: dict[str, torch.Tensor]
    row: dict[str, torch.Tensor]


class Result(NamedTuple):
    rows: dict[int, RowResult]  # by the row's number in the case
    batch: dict[str, torch.Tensor]  # of the batch as a whole


# results of each token of the source, or of the only stack, and of the target
OF_TOKENS = ("last_hidden_state", "logits", "attention_experts", "feed_forward_experts")
OF_TARGET = (*OF_TOKENS, "cross_attention_experts")
OF_SOURCE = ("encoder_last_hidden_state", "encoder_attention_experts", "encoder_feed_forward_experts")
# losses of a batch beside the task's
AUXILIARY = ("aux_loss", "ponder_loss", "router_loss")
OF_ROWS = ("pooler_output", "ponder_cost", "encoder_ponder_cost")
# entries of units that exist, by the steps of the same stack
OF_UNITS = {"": ("ponder_steps", "halting_probabilities")}
OF_UNITS["encoder_"] = tuple(f"encoder_{name}" for name in OF_UNITS[""])


@contextlib.contextmanager
def prepared(model: torch.nn.Module, run: Run):
    """The model as a run wants it; it is afterwards as it was."""
    with contextlib.ExitStack() as stack:
        before = {name: getattr(model.config, name) for name in run.fields}
        stack.callback(lambda: [setattr(model.config, name, value) for name, value in before.items()])
        for name, value in run.fields.items():
            setattr(model.config, name, value)
        if run.attention is not None:
            default = model.config._attn_implementation
            if run.attention == "flash_attention_2":
                stack.enter_context(flash_attention.installed())
            stack.callback(model.set_attn_implementation, default)
            model.set_attn_implementation(run.attention)
        if run.experts is not None:
            stack.callback(model.set_experts_implementation, model.config._experts_implementation)
            model.set_experts_implementation(run.experts)
        if run.reload or run.half == "loaded":
            model = reloaded(model, run.half_type if run.half else next(model.parameters()).dtype)
        if run.half == "autocast":
            stack.enter_context(torch.autocast("cpu", run.half_type))
        if run.noise:
            stack.enter_context(disturbed(model, run.noise))
        if run.training:
            stack.callback(model.eval)
            model.train()
        if run.checkpointing:
            stack.callback(model.gradient_checkpointing_disable)
            model.gradient_checkpointing_enable({"use_reentrant": False})
        yield model


def reloaded(model: torch.nn.Module, dtype: torch.dtype) -> torch.nn.Module:
    with tempfile.TemporaryDirectory() as folder, computing_in(*SINGLE):
        model.save_pretrained(folder)
        return type(model).from_pretrained(folder, dtype=dtype).eval()


@contextlib.contextmanager
def disturbed(model: torch.nn.Module, noise: float):
    parameters = list(model.parameters())
    before = [parameter.data for parameter in parameters]
    for parameter in parameters:
        parameter.data = parameter.data * (1.0 + noise * torch.randn_like(parameter))
    try:
        yield
    finally:
        for parameter, value in zip(parameters, before, strict=True):
            parameter.data = value


def execute(model: torch.nn.Module, case: Case, run: Run) -> Result:
    with prepared(model, run) as model:
        return KINDS[run.kind](model, case, run)


def forward(model: torch.nn.Module, case: Case, run: Run) -> Result:
    arguments = {**run.batch.arguments}
    if run.embedded:
        arguments["inputs_embeds"] = model.get_input_embeddings()(arguments.pop("input_ids"))
    with torch.no_grad():
        output = model(**arguments, **options_of(case, run))
    batch = {name: output[name] for name in ("loss", *AUXILIARY) if output.get(name) is not None}
    return Result(by_row(output, case, model.config, run.batch), batch)


def options_of(case: Case, run: Run) -> dict:
    """Arguments of a forward call besides the batch: the case's, the run's, and records of halting and experts."""
    records = {"output_halting": True} | ({"output_experts": True} if case.architecture == "sut" else {})
    return {**case.options, **records, **run.options}


def halts_by_token(case: Case, config) -> bool:
    if config.capabilities.exit_criterion is None:
        return False
    criterion = case.options.get("exit_criterion") or config.exit_criterion
    return config.token_units if criterion == "learned" else config.stops_by_token(criterion)


def by_row(output, case: Case, config, batch: Batch) -> dict[int, RowResult]:
    """What each row got, wherever its tokens were."""
    found = {}
    for index, number in enumerate(batch.numbers):
        source = list(batch.columns[index])
        own = list(batch.target_columns[index]) if case.two_stacks else source
        result = RowResult({}, {})
        for names, columns in ((OF_TARGET, own), (OF_SOURCE, source)):
            for name in names:
                value = output.get(name)
                if value is not None:
                    by_token = value.dim() > 2
                    place = result.tokens if by_token and names is OF_TARGET else result.row
                    place[name] = value[index][columns] if by_token else value[index]
        for name in OF_ROWS:
            if output.get(name) is not None:
                result.row[name] = output[name][index]
        for prefix, names in OF_UNITS.items():
            add_units(output, index, result, names, prefix == "" and (case.two_stacks or halts_by_token(case, config)))
        found[number] = result
    return found


def add_units(output, index: int, result: RowResult, names: tuple[str, str], by_token: bool) -> None:
    if output.get(names[0]) is None:
        return
    exists = output[names[0]][index] >= 0
    for name in names:
        if output.get(name) is not None:
            (result.tokens if by_token else result.row)[name] = output[name][index][exists]


def reading(model: torch.nn.Module, case: Case, run: Run) -> Result:
    """The batch with a cache, some columns at a time; only what tokens got can be joined."""
    names = (*OF_TARGET, *OF_UNITS[""])
    reading = Reading(model, run.batch.arguments, options_of(case, run), run.new_mask, names)
    for width, detour in zip(run.cuts, run.detours or [None] * len(run.cuts), strict=True):
        if detour is not None:
            DETOURS[detour.kind](reading, detour)
        reading.read(width)
    for error, value in reading.refusals:
        if value not in str(error):
            raise AssertionError(f"{value} is not refused clearly: {error}")
    return Result(by_row(reading.joined(), case, model.config, run.batch.at(reading.rows)), {})


def generate(model: torch.nn.Module, case: Case, run: Run) -> Result:
    """Tokens that a model adds to rows, or its target for them, of all beams; and of a single one the logits."""
    ids = run.batch.arguments["input_ids"]
    with torch.no_grad():
        output = model.generate(
            ids,
            # by default there is padding wherever a prompt has its id
            attention_mask=run.batch.arguments.get("attention_mask", torch.ones_like(ids)),
            max_new_tokens=run.new_tokens,
            min_new_tokens=run.new_tokens,
            num_beams=run.beams,
            num_return_sequences=run.beams,
            do_sample=False,
            pad_token_id=0,
            return_dict_in_generate=True,
            output_logits=True,
            output_scores=True,
            **{**case.options, **run.options},
        )
    values = {"sequences": output.sequences[:, -run.new_tokens :]}
    if run.beams == 1:
        values["logits"] = torch.stack(output.logits, dim=1)
    else:
        values["scores"] = output.sequences_scores
    if output.get("ponder_steps") is not None:
        values["ponder_steps"] = output.ponder_steps
    by_prompt = {name: value.unflatten(0, (-1, run.beams)) for name, value in values.items()}
    rows = enumerate(run.batch.numbers)
    return Result(
        {number: RowResult({}, {name: v[index] for name, v in by_prompt.items()}) for index, number in rows}, {}
    )


def search(model: torch.nn.Module, case: Case, run: Run) -> Result:
    """What beam search finds for a row alone, without a cache."""
    (number,) = run.batch.numbers
    found = beam_search(model, run.batch.arguments, case.options, run.beams, run.new_tokens)
    return Result({number: RowResult({}, found)}, {})


def gradients(model: torch.nn.Module, case: Case, run: Run) -> Result:
    """Of the loss, for each parameter that has one."""
    model.zero_grad()
    torch.manual_seed(case.seed)
    output = model(**run.batch.arguments, **{**case.options, **run.options})
    (output.loss if output.aux_loss is None else output.loss + output.aux_loss).backward()
    found = {f"gradient of {name}": p.grad for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    return Result({}, {"loss": output.loss.detach(), **found})


KINDS = {"forward": forward, "pieces": reading, "generate": generate, "search": search, "gradients": gradients}
