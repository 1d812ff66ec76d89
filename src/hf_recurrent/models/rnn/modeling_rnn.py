"""Recurrent baselines of "The Neural Data Router" (https://arxiv.org/abs/2110.07732): LSTM, BiLSTM and DNC."""

import torch
from torch import nn
from transformers.generation import GenerationMixin

from ..base.base_model import BaseModel, ForwardCall, check_states, pool
from ..base.pretrained import RecurrentPreTrainedModel
from ..config.fields import check_whole
from ..depth.alignment import alignment, permuted, restored
from ..depth.loop import DepthOutput
from ..heads.causal import ForCausalLM
from ..heads.choices import ForMultipleChoice
from ..heads.classification import ForSequenceClassification
from ..heads.masked import ForMaskedLM
from ..heads.questions import ForQuestionAnswering
from ..heads.tokens import ForTokenClassification
from ..ops.graphs import in_graph
from ..ops.initialization import torch_default
from .cache import StateCache
from .configuration_rnn import RNNConfig
from .dnc import DNCLayer
from .lstm import LSTMLayer


class RNNPreTrainedModel(RecurrentPreTrainedModel):
    config: RNNConfig
    _no_split_modules = ["LSTMLayer", "DNCLayer"]
    _supports_sdpa = False
    _supports_flash_attn = False

    def get_correct_attn_implementation(self, requested_attention: str | None, is_init_check: bool = False) -> str:
        if requested_attention not in (None, "eager"):
            raise ValueError(
                f"attn_implementation is {requested_attention!r} but a recurrent network has no attention: leave it "
                "out, or use 'eager'"
            )
        return "eager"

    @staticmethod
    def lm_head_initializer(config):
        return torch_default


class RNNModel(BaseModel, RNNPreTrainedModel):
    """An LSTM, BiLSTM or DNC, token by token; traced graphs hold as many tokens as their example."""

    def __init__(self, config: RNNConfig):
        # a language model changes its config to causal after the check
        config.validate_cell()
        super().__init__(config)
        self.build_embedding(config, size=config.embedding_size)
        if config.cell == "dnc":
            self.dnc = DNCLayer(config)
        else:
            bidirectional = config.cell == "bilstm"
            width = config.hidden_size // 2 if bidirectional else config.hidden_size
            sizes = [config.embedding_size, *[config.hidden_size] * (config.num_hidden_layers - 1)]
            # checkpoints name the weights layers.0.lstm.weight_ih_l0
            layers = [nn.ModuleDict({"lstm": LSTMLayer(size, width, bidirectional)}) for size in sizes]
            self.layers = nn.ModuleList(layers)
        self.post_init()

    def new_cache(self, max_depth: int | None = None) -> StateCache:
        check_whole(max_depth, "max_depth")
        return StateCache(1 if self.config.cell == "dnc" else len(self.layers), self.signature())

    def signature(self) -> str:
        config = self.config
        size = f"{config.cell}, {config.num_hidden_layers} layers, width {config.hidden_size}"
        if config.cell == "dnc":
            size += (
                f", {config.num_memory_cells} cells of {config.memory_cell_size}, {config.num_read_heads} read heads"
            )
        return f"{config.model_type} ({size})"

    def resolve_output_flags(self, attentions: bool | None, hidden_states: bool | None) -> tuple[bool, bool]:
        attentions, hidden_states = super().resolve_output_flags(attentions, hidden_states)
        if attentions and self.config.cell != "dnc":
            raise ValueError(
                f"output_attentions=True but cell={self.config.cell!r} has no attention: leave it out (cell='dnc' "
                "returns the attention of each token to the memory)"
            )
        return attentions, hidden_states

    def pooled(self, depth: DepthOutput, mask: torch.Tensor) -> torch.Tensor:
        """For pooling "end", a BiLSTM takes the last state of either direction."""
        if self.config.cell != "bilstm" or self.config.pooling != "end":
            return super().pooled(depth, mask)
        forward, backward = depth.hidden_states.chunk(2, dim=-1)
        return torch.cat((pool(forward, mask, "end"), pool(backward, mask, "cls")), dim=-1)

    def encode(self, hidden: torch.Tensor, mask: torch.Tensor, call: ForwardCall) -> DepthOutput:
        tokens = mask
        # of each layer, or of all layers of a DNC
        before = [{}] * self.config.num_hidden_layers if call.cache is None else call.cache.states(call.start)
        lengths, orders = (None, None) if in_graph() else (mask.sum(-1).cpu(), alignment(mask))
        if orders is not None:
            hidden, tokens = permuted(hidden, orders[0], 1), permuted(mask, orders[0], 1)
        recorded, states, reads = [hidden], [], None
        if self.config.cell == "dnc":
            hidden, controller_states, read_weights, state = self.dnc(hidden, tokens, lengths, before[0])
            # the outputs replace the top layer's states
            recorded += [*controller_states[:-1], hidden]
            states, reads = [state], (read_weights,)
        else:
            for index, layer in enumerate(self.layers):
                hidden, state = layer["lstm"](self.dropout(hidden) if index else hidden, tokens, lengths, before[index])
                recorded.append(hidden)
                states.append(state)
        records = tuple(recorded) if call.record_states else None
        depth = DepthOutput(hidden, all_hidden_states=records, read_attentions=reads)
        depth = depth if orders is None else restored(depth, orders[1])
        depth = depth._replace(hidden_states=check_states(depth.hidden_states, mask))
        if call.cache is not None:
            call.cache.update_states(states, before, mask)
        return depth


class RNNForSequenceClassification(ForSequenceClassification, RNNPreTrainedModel):
    base_model_class = RNNModel


class RNNForTokenClassification(ForTokenClassification, RNNPreTrainedModel):
    base_model_class = RNNModel


class RNNForMaskedLM(ForMaskedLM, RNNPreTrainedModel):
    base_model_class = RNNModel
    example = (', cell="bilstm"', ForMaskedLM.example[1])

    def __init__(self, config: RNNConfig):
        config.require(
            config.cell == "bilstm",
            "cell",
            "it reads to the left only, but a masked token is predicted from both sides; use 'bilstm', or "
            "AutoModelForCausalLM",
        )
        super().__init__(config)


class RNNForQuestionAnswering(ForQuestionAnswering, RNNPreTrainedModel):
    base_model_class = RNNModel


class RNNForMultipleChoice(ForMultipleChoice, RNNPreTrainedModel):
    base_model_class = RNNModel


class RNNForCausalLM(ForCausalLM, RNNPreTrainedModel, GenerationMixin):
    base_model_class = RNNModel
    # an update of the state cannot be undone
    _is_stateful = True


__all__ = [
    "RNNForCausalLM",
    "RNNForMaskedLM",
    "RNNForMultipleChoice",
    "RNNForQuestionAnswering",
    "RNNForSequenceClassification",
    "RNNForTokenClassification",
    "RNNModel",
    "RNNPreTrainedModel",
]
