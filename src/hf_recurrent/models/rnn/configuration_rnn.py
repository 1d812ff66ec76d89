"""Configuration of recurrent baselines: LSTM, bidirectional LSTM and differentiable neural computer (DNC)."""

from dataclasses import replace
from typing import Literal

from ..config.base import Capabilities, RecurrentConfig, require
from ..config.fields import Layers, Length, NotNegative, Share, Size, checked_config
from ..config.presets import RNN_SIZES


@checked_config
class RNNConfig(RecurrentConfig):
    """Configuration of `RNNModel`, the recurrent baselines of "The Neural Data Router" (section 3, Tables 7 to 9).

    Defaults are the paper's LSTM on compositional table lookup; `cell` makes its other two. On simple arithmetic it has
    2 layers and `embedding_size=None`; on ListOps 4 layers of 512, `embedding_size=None` and a dropout of 0.1.

    Fields are those of `RecurrentConfig`, where `num_hidden_layers` counts stacked LSTMs (of a DNC, those of its
    controller), `dropout` follows the embeddings and lies between the layers of an LSTM, and `pooling="end"` is of a
    BiLSTM the final state of either direction: the forward half at the last token and the backward half at
    the first. In the authors' code sequences have no BOS, a BiLSTM processes the EOS too, and LSTM and DNC stop before
    it.

    Parameters by default: 174,912 (`RNNModel`).

    Args:
        cell: the recurrent cell: an "lstm", a "bilstm" (each direction half as wide as `hidden_size`, as in the
            authors' code), or a "dnc".
        embedding_size: width of token embeddings; `hidden_size` if None.
        num_memory_cells: cells M of a DNC's memory.
        memory_cell_size: width W of a cell; `hidden_size` if None, as in the authors' code.
        num_read_heads: read heads R of a DNC.
        memory_masking: search the memory by a chosen part of each cell. This and the following are the improvements of
            Csordas and Schmidhuber (2019), with which the paper reports the DNC; its code leaves this one out.
        memory_deallocation: erase cells that are freed.
        link_sharpening: sharpen the temporal links that are followed.
    """

    model_type = "rnn"
    presets = RNN_SIZES

    hidden_size: Size = 200
    num_hidden_layers: Layers = 1
    dropout: Share = 0.5
    pooling: Literal["mean", "end", "cls"] = "end"
    classifier: Literal["linear", "mlp"] = "linear"
    initializer_range: NotNegative = 1.0
    cell: Literal["lstm", "bilstm", "dnc"] = "lstm"
    embedding_size: Size | None = 16
    num_memory_cells: Length = 21
    memory_cell_size: Size | None = None
    num_read_heads: Size = 4
    memory_masking: bool = True
    memory_deallocation: bool = True
    link_sharpening: bool = True

    def __post_init__(self, **kwargs):
        if self.embedding_size is None:
            self.embedding_size = self.hidden_size
        if self.memory_cell_size is None:
            self.memory_cell_size = self.hidden_size
        super().__post_init__(**kwargs)

    @property
    def capabilities(self) -> Capabilities:
        return replace(super().capabilities, reads="tokens", attends=False, growing_cache=False)

    def validate_cell(self):
        if self.cell == "bilstm":
            require(self.hidden_size % 2 == 0, "hidden_size", self.hidden_size, "a bilstm has two halves: make it even")
            require(
                not self.is_causal,
                "cell",
                self.cell,
                "its states depend on later tokens, so it is no causal language model: use 'lstm' or 'dnc'",
            )
        require(
            not self.tie_word_embeddings or self.embedding_size == self.hidden_size,
            "tie_word_embeddings",
            self.tie_word_embeddings,
            f"embeddings are {self.embedding_size} wide and states {self.hidden_size}: make embedding_size equal",
        )


__all__ = ["RNNConfig"]
