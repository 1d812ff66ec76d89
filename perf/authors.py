"""The authors' models, made from folders with their code, and ours with the same weights.

What their code imports and a CPU does not have is stood in for: fused attention on packed sequences by torch's
attention on padded ones, the CUDA kernels of geometric attention by tensor operations, fairseq's base classes by
torch's. Outputs are compared before anything is timed.
"""

import argparse
import importlib
import json
import math
import os
import sys
import tempfile
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional as F

from tests.parity.reference import load_reference

from .geometric import window_sum
from .models import random_lengths, random_tokens

CLASSES, WORDS = 10, 17


class Pair(NamedTuple):
    """Their model and ours with equal weights; the functions run them on the same batch -> outputs that must agree."""

    theirs: nn.Module
    ours: nn.Module
    forward: dict[str, Callable[[], torch.Tensor]]
    loss: dict[str, Callable[[], torch.Tensor]]
    decode: dict[str, Callable[[], torch.Tensor]] | None = None


@contextmanager
def importable(folder: Path, stand_ins: dict[str, Any]) -> Iterator[None]:
    """Make the modules of a folder importable; what was imported from it is forgotten afterwards."""
    before, here = set(sys.modules), os.getcwd()
    sys.path.insert(0, str(folder.absolute()))
    with tempfile.TemporaryDirectory() as scratch, mock.patch.dict(sys.modules, stand_ins):
        # some of their modules make folders where they are imported
        os.chdir(scratch)
        try:
            yield
        finally:
            os.chdir(here)
            sys.path.pop(0)
            for name in set(sys.modules) - before:
                if str(getattr(sys.modules[name], "__file__", "")).startswith(str(folder.absolute())):
                    del sys.modules[name]


def converted(case: dict[str, Any], weights: dict[str, torch.Tensor]) -> Any:
    """Our model with their weights, through the converter of their checkpoints."""
    with tempfile.TemporaryDirectory() as folder:
        save_file({name: tensor.detach().clone() for name, tensor in weights.items()}, f"{folder}/weights.safetensors")
        Path(folder, "case.json").write_text(json.dumps(case), encoding="utf-8")
        return load_reference(folder)


def attend_packed(q, kv, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p, softmax_scale, causal):
    """flash-attn's function for sequences without padding, (T, H, D) and (T, 2, H, D) -> (T, H, D)."""

    def spread(packed: torch.Tensor, starts: torch.Tensor, width: int) -> tuple[torch.Tensor, torch.Tensor]:
        mask = torch.arange(width) < starts.diff()[:, None]
        padded = packed.new_zeros(*mask.shape, *packed.shape[1:])
        padded[mask] = packed
        return padded, mask

    query, present = spread(q, cu_seqlens_q, int(max_seqlen_q))
    pairs, keys = spread(kv, cu_seqlens_k, int(max_seqlen_k))
    visible = keys[:, None, None]
    if causal:
        visible = visible & torch.ones(query.shape[1], keys.shape[1], dtype=torch.bool).tril()
    query, key, value = (each.transpose(1, 2) for each in (query, *pairs.unbind(2)))
    attended = F.scaled_dot_product_attention(query, key, value, visible, dropout_p, scale=softmax_scale)
    return attended.transpose(1, 2)[present]


class SinglePrecision(types.ModuleType):
    """torch, whose half precision is float32."""

    float16 = torch.float32

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


DYNAMIC_HALT = {"ut": "UT", "gut": "GUT_end", "xpos_transformer": "Transformer", "tlb": "TLB", "gutlb": "GUTLB"}


def dynamic_halt(folder: Path, name: str, args: argparse.Namespace) -> Pair:
    """JRC1995/InvestigatingRecurrentTransformers: a ListOps classifier; halting is made to vary by its weights."""
    flash = types.SimpleNamespace(flash_attn_varlen_kvpacked_func=attend_packed)
    with importable(folder, {"flash_attn": flash}):
        configs = importlib.import_module("configs.listopsc2_configs")
        config = vars(getattr(configs, f"{DYNAMIC_HALT[name]}_config")())
        sizes = {"hidden_size": args.hidden_size, "embd_dim": args.hidden_size, "ffn_dim": 2 * args.hidden_size}
        sizes |= {"heads": args.num_heads, "head_dim": args.hidden_size // args.num_heads, "layers": args.num_steps}
        sizes |= {"ffn_gate_dim": 2 * args.hidden_size} if "ffn_gate_dim" in config else {}
        config |= sizes | {"dropout": 0.0, "attn_dropout": 0.0}
        data = {"classes_num": CLASSES, "PAD_id": WORDS - 2, "UNK_id": WORDS - 3, "vocab_len": WORDS}
        theirs = importlib.import_module("models").classifier_framework(data, config)
        for module in list(sys.modules.values()):
            if getattr(module, "T", None) is torch:
                module.T = SinglePrecision("torch")
    if hasattr(theirs.encoder, "halt_layers"):
        theirs.encoder.halt_layers[2].weight.data.mul_(4.0)
        nn.init.constant_(theirs.encoder.halt_layers[2].bias, -1.0)
    reference = converted({"framework": "classifier", "config": config, "data": data}, theirs.state_dict())
    ids, lengths, labels = examples(args, WORDS - 3)
    mask = (torch.arange(ids.shape[1]) < lengths[:, None]).float()
    inputs, _ = reference.inputs({"input_ids": ids, "input_mask": mask, "labels": labels})
    if reference.halts:
        inputs["max_depth"] = args.num_steps
    batch = {"sequences_vec": ids.masked_fill(mask == 0, WORDS - 2), "input_masks": mask}

    def their_loss() -> torch.Tensor:
        output = theirs(batch)
        loss = F.cross_entropy(output["logits"], labels)
        return loss if output["aux_loss"] is None else loss + output["aux_loss"]

    def our_loss() -> torch.Tensor:
        output = ours(**inputs)
        return output.loss

    ours, without = reference.model, {key: value for key, value in inputs.items() if key != "labels"}
    return Pair(
        theirs,
        ours,
        {"theirs": lambda: theirs(batch)["logits"], "ours": lambda: ours(**without).logits},
        {"theirs": their_loss, "ours": our_loss},
    )


def examples(args: argparse.Namespace, words: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Random ids (B, S), lengths (B,) and labels (B,)."""
    lengths = random_lengths(args.batch_size, *args.lengths, args.seed)
    ids = random_tokens((args.batch_size, args.lengths[1]), args.seed) % words
    return ids, lengths, torch.arange(args.batch_size) % CLASSES


def neural_data_router(folder: Path, name: str, args: argparse.Namespace) -> Pair:
    """RobertCsordas/ndr: the router for compositional table lookup, with gates that are half open."""
    parts = ("utils", "visualize", "helpers", "loader", "data_structures")
    with importable(folder, {f"framework.{part}": mock.MagicMock() for part in parts}):
        models = importlib.import_module("models")
        layers = importlib.import_module("layers.transformer.ndr")
        geometric = importlib.import_module("layers.transformer.ndr_geometric")
        kernels = importlib.import_module("layers.transformer.geometric_attention.cuda_interface")
    kernels.window_sum = lambda cumulative, offset: window_sum(cumulative)
    kernels.log_sigmoid = lambda logits: (F.logsigmoid(logits), F.logsigmoid(-logits))
    options = {"n_extra": 0, "n_test": None, "normalize_score": False, "p_gate_drop": 0.0, "attention_dropout": 0.0}
    theirs = models.TransformerClassifierModel(
        WORDS,
        CLASSES,
        args.hidden_size,
        ff_multiplier=2,
        transformer=layers.UniversalTransformerRandomLayerEncoderWithLayer(geometric.NDRGeometric),
        pos_embeddig=lambda states, offset: states,
        result_column="last",
        nhead=args.num_heads,
        n_layers=args.num_steps,
        dropout=0.0,
        **options,
    )
    nn.init.zeros_(theirs.trafo.layer.g2.bias)
    config = {
        "official_variant": "ndr_geometric",
        "d_model": args.hidden_size,
        "n_heads": args.num_heads,
        "d_head": args.hidden_size // args.num_heads,
        "d_ff": 2 * args.hidden_size,
        "n_layers": args.num_steps,
        "vocab_size": WORDS,
        "n_classes": CLASSES,
        "eos_id": WORDS,
        "bos_id": WORDS + 1,
        "embedding_rows": WORDS + 2,
        "readout": "last",
        "activation": "relu",
        "layer_norm_eps": 1e-5,
        "positions": "geometric+direction",
        "copy_gate": True,
        "normalize_attention": False,
    }
    weights = {name: tensor for name, tensor in theirs.state_dict().items() if not name.startswith(("pos.", "int_seq"))}
    del weights["trafo.layer.att.pos_encoding"]
    reference = converted({"family": "ndr", "config": config}, weights)
    ours = without_dropout(reference.model)
    ids, lengths, labels = examples(args, WORDS)
    inputs = dict(zip(("input_ids", "attention_mask"), reference.with_boundaries(ids, lengths), strict=True))
    return Pair(
        theirs,
        ours,
        {"theirs": lambda: theirs(ids, lengths), "ours": lambda: ours(**inputs).logits},
        {
            "theirs": lambda: F.cross_entropy(theirs(ids, lengths), labels),
            "ours": lambda: ours(**inputs, labels=labels).loss,
        },
    )


def without_dropout(model: nn.Module) -> nn.Module:
    """The model, none of whose parts drops anything in training."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        if hasattr(module, "gate_dropout"):
            module.gate_dropout = 0.0
        # each stack may have a config of its own
        if hasattr(module, "config"):
            module.config.attention_dropout = 0.0
    return model


class FairseqModule(nn.Module):
    """fairseq's base class of encoders and decoders."""

    def __init__(self, dictionary: Any):
        super().__init__()


class FairseqDropout(nn.Dropout):
    def __init__(self, p: float, module_name: str | None = None):
        super().__init__(p)


class FairseqSinusoids(nn.Module):
    """fairseq's table of positions, which begin behind the padding's id; sines, then cosines."""

    def __init__(self, width: int, padding_idx: int):
        super().__init__()
        self.half, self.padding_idx = width // 2, padding_idx

    def forward(self, ids: torch.Tensor, incremental_state: dict | None = None) -> torch.Tensor:
        mask = ids.ne(self.padding_idx)
        places = torch.where(mask, mask.cumsum(1) + self.padding_idx, self.padding_idx)
        rates = torch.exp(torch.arange(self.half) * (-math.log(10_000) / (self.half - 1)))
        angles = places[..., None] * rates
        return torch.cat((angles.sin(), angles.cos()), dim=-1).masked_fill(~mask[..., None], 0.0)


def with_incremental_state(owner: type) -> type:
    """fairseq's decorator: a module's own entries of a decoder's cache."""

    def read(self, state: dict | None, name: str) -> Any:
        return None if state is None else state.get((id(self), name))

    def write(self, state: dict | None, name: str, value: Any) -> dict | None:
        if state is not None:
            state[id(self), name] = value
        return state

    owner.get_incremental_state, owner.set_incremental_state = read, write
    return owner


def fairseq() -> dict[str, Any]:
    """What their encoder and decoder take from fairseq."""
    parts = (
        "", ".utils", ".distributed", ".models", ".models.transformer", ".modules", ".modules.fairseq_dropout",
        ".modules.quant_noise", ".modules.checkpoint_activations", ".incremental_decoding_utils",
    )  # fmt: skip
    modules = {f"fairseq{part}": mock.MagicMock() for part in parts}
    modules["fairseq"].utils = modules["fairseq.utils"] = types.SimpleNamespace(
        get_activation_fn=lambda activation: F.gelu,
        softmax=lambda logits, dim, onnx_trace: F.softmax(logits, dim=dim, dtype=torch.float32),
        fill_with_neg_inf=lambda values: values.fill_(-torch.inf),
        safe_getattr=getattr,
    )
    models = modules["fairseq.models"]
    models.FairseqEncoder = models.FairseqIncrementalDecoder = FairseqModule
    modules["fairseq.distributed"].fsdp_wrap = lambda module, **_: module
    modules["fairseq.incremental_decoding_utils"].with_incremental_state = with_incremental_state
    modules["fairseq.modules.quant_noise"].quant_noise = lambda module, *_, **__: module
    parts = modules["fairseq.modules"]
    parts.FairseqDropout = modules["fairseq.modules.fairseq_dropout"].FairseqDropout = FairseqDropout
    parts.LayerNorm = lambda width, export: nn.LayerNorm(width)
    parts.PositionalEmbedding = lambda _, width, padding_idx, learned: FairseqSinusoids(width, padding_idx)
    return modules


class Translator(nn.Module):
    """Their encoder, and their decoder if there is one."""

    def __init__(self, encoder: nn.Module, decoder: nn.Module | None):
        super().__init__()
        self.encoder, self.decoder = encoder, decoder

    @torch.no_grad()
    def decode(self, ids: torch.Tensor, count: int, start: int, pad: int) -> torch.Tensor:
        """Greedy decoding of tokens (B, count), any but padding, with their cache."""
        encoded, state = self.encoder(ids), {}
        tokens = ids.new_full((len(ids), 1), start)
        for _ in range(count):
            logits = self.decoder(tokens, encoded, incremental_state=state)[0][:, -1]
            logits[:, pad] = -torch.inf
            tokens = torch.cat((tokens, logits.argmax(-1, keepdim=True)), dim=1)
        return tokens[:, 1:]


PAD, END, EXPERTS, SERVED = 1, 2, 4, 2


def their_translator(folder: Path, translates: bool, args: argparse.Namespace) -> Translator:
    width, head = args.hidden_size, args.hidden_size // args.num_heads
    stack = types.SimpleNamespace(
        embed_dim=width, layers=args.num_steps, halting=True, layerdrop=0.0, learned_pos=False, normalize_before=False,
        attn_num_expert=EXPERTS, attn_k=SERVED, attn_expert_dim=2 * head,
        ff_num_expert=EXPERTS, ff_k=SERVED, ff_expert_dim=width, output_dim=width,
    )  # fmt: skip
    config = types.SimpleNamespace(
        encoder=stack, decoder=stack, head_dim=head, dropout=0.0, attention_dropout=0.0, activation_dropout=0.0,
        relu_dropout=0.0, halting_dropout=0.0, gating_dropout=0.0, activation_fn="gelu", actloss=0.0, miloss=0.0,
        cvloss=0.0, switchloss=0.0, zloss=0.0, sample_topk=0, max_source_positions=1024, max_target_positions=1024,
        no_scale_embedding=False, no_token_positional_embeddings=False, layernorm_embedding=False,
        adaptive_input=False, adaptive_softmax_cutoff=None, share_decoder_input_output_embed=True,
        cross_self_attention=False, export=False, checkpoint_activations=False, min_params_to_wrap=0,
        quant_noise=types.SimpleNamespace(pq=0, pq_block_size=8),
    )  # fmt: skip
    package = types.ModuleType("sut_reference")
    package.__path__ = [str(folder.absolute())]
    stand_ins = {"sut_reference": package, "sut_reference.transformer_config": mock.MagicMock()}
    embedding = nn.Embedding(WORDS, width, padding_idx=PAD)
    with importable(folder, {**fairseq(), **stand_ins}):
        make = importlib.import_module("sut_reference.transformer_encoder").TransformerEncoderBase
        encoder, decoder = make(config, None, embedding), None
        if translates:
            make = importlib.import_module("sut_reference.transformer_decoder").TransformerDecoderBase
            decoder = make(config, None, embedding)
    theirs = Translator(encoder, decoder)
    for name, parameter in theirs.named_parameters():
        if parameter.dim() > 1:
            spread = 8.0 if name.endswith("halting_universal_layer._gate.3.weight") else 1.0
            # maps of experts are [in, out]
            inputs = parameter.shape[-2 if parameter.dim() == 3 else -1]
            nn.init.normal_(parameter, std=spread * inputs**-0.5)
    return theirs


def sparse_universal(folder: Path, name: str, args: argparse.Namespace) -> Pair:
    """shawntan/SUT: the encoder, or both stacks; halting is made to vary by its weights."""
    translates = name == "sut_seq2seq"
    theirs = their_translator(folder, translates, args)
    case = {
        "kind": "ed" if translates else "enc", "activation_fn": "gelu", "encoder_halting": True,
        "decoder_halting": True, "vocab_size": WORDS, "d_model": args.hidden_size, "encoder_layers": args.num_steps,
        "decoder_layers": args.num_steps, "heads_per_expert": 2, "head_dim": args.hidden_size // args.num_heads,
        "attn_num_experts": EXPERTS, "attn_top_k": SERVED, "ffd_num_experts": EXPERTS, "ffd_top_k": SERVED,
        "ffd_expert_dim": args.hidden_size, "max_positions_const": 64, "normalize_before": False,
        "halt_threshold": 0.999, "act_coef": 0.0, "mim_coef": 0.0, "label_smoothing": 0.0,
        "share_all_embeddings": True, "pad_idx": PAD, "eos_idx": END,
    }  # fmt: skip
    # the same tensors under several names
    aliases = (".mod.", "decoder.embed_tokens", "decoder.output_projection")
    state = theirs.state_dict().items()
    weights = {name: tensor for name, tensor in state if not any(alias in name for alias in aliases)}
    ours = without_dropout(converted({"family": "sut", "config": case}, weights).model)
    ids, lengths, _ = examples(args, WORDS)
    mask = torch.arange(ids.shape[1]) < lengths[:, None]
    ids = torch.where(mask, ids.clamp_min(END), PAD)
    inputs = {"input_ids": ids, "attention_mask": mask.long()}
    if not translates:
        forward = {
            "theirs": lambda: theirs.encoder(ids)["encoder_out"][0].transpose(0, 1)[mask],
            "ours": lambda: ours(**inputs, pooling=False).last_hidden_state[mask],
        }
        return Pair(theirs, ours, forward, {side: squares(call) for side, call in forward.items()})
    count, targets = args.new_tokens, torch.where(mask, ids, END)
    forward = {
        "theirs": lambda: theirs.decoder(targets, theirs.encoder(ids))[0],
        "ours": lambda: ours(**inputs, decoder_input_ids=targets).logits,
    }
    ours.generation_config.update(eos_token_id=None, suppress_tokens=[PAD], max_new_tokens=count, do_sample=False)
    decode = {
        "theirs": lambda: theirs.decode(ids, count, END, PAD),
        "ours": lambda: ours.generate(**inputs)[:, 1:],
    }
    return Pair(theirs, ours, forward, {side: squares(call) for side, call in forward.items()}, decode)


def squares(call: Callable[[], torch.Tensor]) -> Callable[[], torch.Tensor]:
    return lambda: call().square().mean()
