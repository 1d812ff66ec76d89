"""Running the inputs of "Investigating Recurrent Transformers with Dynamic Halt", with results under their names.

Shapes: N sequences (2N for sentence pairs), S columns, K chunks, I iterations, s tokens a chunk.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch

from hf_recurrent.convert.dynamic_halt import BITS
from hf_recurrent.models.depth.chunk_plan import chunk_size
from hf_recurrent.models.ops.attention import PackedContext

from .recording import record_calls, require_keys, their_gradients


def with_boundaries(ids: torch.Tensor, mask: torch.Tensor, config) -> tuple[torch.Tensor, torch.Tensor]:
    """Add BOS before and EOS after each sequence's tokens, if the model has them: (N, S) -> (N, S + 2)."""
    if config.bos_token_id is None:
        return ids, mask.bool()
    lengths = mask.sum(-1, keepdim=True).long()
    bos, pad = (ids.new_full((ids.shape[0], 1), token) for token in (config.bos_token_id, config.pad_token_id))
    ids = torch.cat((bos, ids, pad), dim=1).scatter(1, lengths + 1, config.eos_token_id)
    return ids, torch.arange(ids.shape[1], device=ids.device) < lengths + 2


def spread(context: NamedTuple, *states: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """States of a block as rows of a rectangle."""
    return tuple(context.queries.unpack(each) for each in states) if isinstance(context, PackedContext) else states


class RecordedCalls:
    """Calls of a base model, of its first block, and of its halting head by chunk."""

    def __init__(self):
        self.encoded: list = []
        self.blocks: list = []
        self.probabilities: list[list[torch.Tensor]] = []


@contextmanager
def record_run(model) -> Iterator[RecordedCalls]:
    base, config = model.model, model.config
    seen, latest = RecordedCalls(), []
    block = base.block if hasattr(base, "block") else base.layers[0]
    removers = [
        record_calls(base, lambda args, output: (args, output), seen.encoded),
        record_calls(block, lambda args, output: spread(args[1], args[0], output.hidden_states), seen.blocks),
    ]
    if hasattr(base, "halting_head"):
        removers.append(record_calls(base.halting_head, lambda args, output: output, latest))
    run_name = "run_chunk" if hasattr(config, "chunk_size") else "run_depth"
    run = getattr(base, run_name)

    def run_and_split(*args):
        latest.clear()
        output = run(*args)
        seen.probabilities.append(list(latest))
        return output

    setattr(base, run_name, run_and_split)
    compaction = getattr(config, "compaction", None)
    if compaction is not None:
        # they recompute the halting probabilities of halted units until the whole batch has stopped
        config.compaction = False
    try:
        yield seen
    finally:
        delattr(base, run_name)
        for remove in removers:
            remove()
        if compaction is not None:
            config.compaction = compaction


class DynamicHaltReference:
    """Our model with their weights; see `Reference`. `theirs`: their parameters; `ours`: ours, computed from them."""

    def __init__(self, model, theirs: dict[str, torch.Tensor], ours: dict[str, torch.Tensor]):
        self.model, self.theirs, self.ours = model, theirs, ours

    @property
    def halts(self) -> bool:
        return hasattr(self.model.config, "halting")

    @property
    def is_chunked(self) -> bool:
        return hasattr(self.model.config, "chunk_size")

    def run(self, io: dict[str, torch.Tensor], gradients: bool = False) -> dict[str, torch.Tensor]:
        inputs, encoder_mask = self.inputs(io)
        width = encoder_mask.shape[1]
        size = chunk_size(self.model.config, width) if self.is_chunked else width
        if self.halts:
            inputs["max_depth"] = min(self.model.config.num_hidden_layers, size + 1)
        self.model.zero_grad()
        with record_run(self.model) as seen, torch.set_grad_enabled(gradients):
            outputs = self.model(**inputs)
        (args, encoded), *_ = seen.encoded
        results = self.encoder_results(args, encoded, encoder_mask)
        if seen.blocks:
            results |= {"block_in_0": seen.blocks[0][0], "block_out_0": seen.blocks[0][1]}
        results |= {"logits": self.logits(outputs), "task_loss": outputs.loss.view(1)}
        results["loss"] = results["task_loss"]
        if self.halts:
            results["aux_loss"] = outputs.aux_loss.view(1)
            results["aux_loss_per_sample"] = self.model.config.ponder_loss_weight * encoded.ponder_cost
            results["loss"] = results["task_loss"] + results["aux_loss"]
            results |= self.halting_results(encoded.ponder_steps, encoder_mask, size, seen.probabilities)
        if gradients:
            results["loss"].sum().backward()
            # a language model reads no boundaries
            unused = ("encoder.START", "encoder.END") if self.model.config.is_causal else ()
            used = {name: tensor for name, tensor in self.theirs.items() if name not in unused}
            results |= their_gradients(self.model, used, self.ours)
        return {name: tensor.detach() for name, tensor in results.items()}

    def encoder_results(self, args, encoded, encoder_mask: torch.Tensor) -> dict[str, torch.Tensor]:
        # language models do not pool, and memories are returned on request only
        with torch.no_grad():
            described = self.model.model(*args, output_hidden_states=self.is_chunked)
        results = {
            "sequence": encoded.last_hidden_state,
            "encoder_mask": encoder_mask.to(encoded.last_hidden_state.dtype),
            "global_state": described.pooler_output,
        }
        if self.is_chunked:
            results["memory_per_chunk"] = torch.stack(described.memory_states[1:])
        return results

    def halting_results(
        self, steps: torch.Tensor, mask: torch.Tensor, size: int, calls: list[list[torch.Tensor]]
    ) -> dict[str, torch.Tensor]:
        """Halting by iteration, or by chunk and iteration, padded with -1."""
        by_token = self.model.config.token_units
        chunks = []
        for index, probabilities in enumerate(calls):
            columns = slice(index * size, (index + 1) * size)
            here = mask[:, columns]
            present = here.any(-1)
            accepted = steps
            if self.is_chunked:
                accepted = steps[:, columns] if by_token else steps[:, index]
            if not by_token:
                # a sequence without tokens in the chunk takes one step
                accepted = torch.where(present, accepted, 1)
            max_loops = min(self.model.config.num_hidden_layers, here.shape[1] + 1)
            loops = min(int(accepted.max()) + 1, max_loops)
            # halted units would compute the same probabilities again
            probabilities = probabilities + probabilities[-1:] * (loops - len(probabilities))
            units = (len(present), here.shape[1]) if by_token else (len(present),)
            conditional = torch.zeros(loops, *units, device=here.device)
            # tokens may be packed
            conditional[:, here if probabilities[0].dim() < conditional.dim() - 1 else present] = torch.stack(
                probabilities[:loops]
            )
            chunks.append(halting_of_chunk(conditional, accepted))
        if not self.is_chunked:
            return chunks[0]
        return {name: stack_padded([chunk[name] for chunk in chunks]) for name in chunks[0]} | {
            "n_layers_executed": stack_padded([chunk["n_layers_executed"] for chunk in chunks]).clamp_min(0),
            "n_loop_iterations": torch.cat([chunk["n_loop_iterations"] for chunk in chunks]),
        }


def halting_of_chunk(conditional: torch.Tensor, accepted: torch.Tensor) -> dict[str, torch.Tensor]:
    """Conditional halting probabilities (I, N) or (I, N, s), accepted steps (N,) or (N, s) -> their records."""
    remaining = (1 - conditional).cumprod(0)
    remaining_before = torch.cat((torch.ones_like(remaining[:1]), remaining[:-1]))
    iteration = torch.arange(conditional.shape[0], device=conditional.device).view(-1, *(1,) * accepted.dim())
    return {
        "halt_probs": conditional,
        "total_halt_probs": (remaining_before * conditional).cumsum(0),
        "update_flags": (iteration < accepted).float(),
        "n_layers_executed": accepted.clamp_min(0),
        "n_loop_iterations": torch.tensor([conditional.shape[0]]),
    }


def stack_padded(pieces: list[torch.Tensor]) -> torch.Tensor:
    """Stack tensors of different sizes, padded with -1."""
    sizes = [max(extents) for extents in zip(*(piece.shape for piece in pieces), strict=True)]
    whole = pieces[0].new_full((len(pieces), *sizes), -1)
    for index, piece in enumerate(pieces):
        whole[(index, *(slice(0, extent) for extent in piece.shape))] = piece
    return whole


class ClassifierReference(DynamicHaltReference):
    """A classifier or sentence-pair classifier."""

    def inputs(self, io: dict[str, torch.Tensor]) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
        """Their inputs -> our keyword arguments, and the mask of their padded batch of sentences."""
        config = self.model.config
        suffixes = ("1", "2") if config.pair_encoding == "siamese" else ("",)
        require_keys(io, [f"input_{kind}{suffix}" for suffix in suffixes for kind in ("ids", "mask")] + ["labels"])
        sides = [with_boundaries(io["input_ids" + s], io["input_mask" + s], config) for s in suffixes]
        inputs = {
            "input_ids": torch.cat([ids for ids, _ in sides], dim=1),
            "attention_mask": torch.cat([mask for _, mask in sides], dim=1).long(),
            "labels": io["labels"],
        }
        if len(sides) == 2:
            types = [torch.full_like(ids, side) for side, (ids, _) in enumerate(sides)]
            inputs["token_type_ids"] = torch.cat(types, dim=1)
        width = max(mask.shape[1] for _, mask in sides)
        padded = [torch.nn.functional.pad(mask, (0, width - mask.shape[1])) for _, mask in sides]
        return inputs, torch.cat(padded)

    def logits(self, outputs) -> torch.Tensor:
        return outputs.logits


class FlipFlopReference(DynamicHaltReference):
    """A flip-flop model, with one logit for each position, the log-odds of the bit 1."""

    def inputs(self, io: dict[str, torch.Tensor]) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
        require_keys(io, ["input_ids", "input_mask", "labels", "loss_mask"])
        config, width = self.model.config, io["input_ids"].shape[1]
        if self.is_chunked and chunk_size(config, width) == config.num_memory_slots:
            raise ValueError(
                f"input_ids has {width} columns, which makes chunks of {config.num_memory_slots} tokens for as many "
                "memory slots: their code then masks the memory as if slots were tokens, which this package does not "
                "imitate; run inputs of another length"
            )
        bits = torch.where(io["labels"] > 0.5, BITS[1], BITS[0])
        inputs = {
            "input_ids": io["input_ids"],
            "attention_mask": io["input_mask"].long(),
            "shift_labels": torch.where(io["loss_mask"] > 0, bits, -100),
        }
        return inputs, io["input_mask"].bool()

    def logits(self, outputs) -> torch.Tensor:
        zero, one = (outputs.logits[..., bit, None] for bit in BITS)
        return one - zero
