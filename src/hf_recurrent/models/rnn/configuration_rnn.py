"""Configuration of recurrent baselines: LSTM, bidirectional LSTM and differentiable neural computer (DNC)."""

from dataclasses import replace
from typing import Literal

from huggingface_hub.dataclasses import strict

from ..common.configuration import Capabilities, RecurrentConfig, require


@strict
class RNNConfig(RecurrentConfig):
    """Configuration of `RNNModel`, the recurrent baselines of "The Neural Data Router" (section 3, Tables 7 to 9).

    Defaults are the paper's LSTM on compositional table lookup; `cell` makes its other two. On simple arithmetic it has
    2 layers and `embedding_size=None`; on ListOps 4 layers of 512, `embedding_size=None` and a dropout of 0.1.

    Fields are those of `RecurrentConfig`, where `num_hidden_layers` counts stacked LSTMs (of a DNC, those of its
    controller), `dropout` follows the embeddings and lies between the layers of an LSTM, and `pooling="end"` is of a
    BiLSTM the final state of either direction: the forward half at the last token and the backward half at
    the first. In the authors' code sequences have no BOS, a BiLSTM processes the EOS too, and LSTM and DNC stop before
    it.

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

    hidden_size: int = 200
    num_hidden_layers: int = 1
    dropout: float | int = 0.5
    pooling: Literal["mean", "end", "cls"] = "end"
    classifier: Literal["linear", "mlp"] = "linear"
    initializer_range: float | int = 1.0
    cell: Literal["lstm", "bilstm", "dnc"] = "lstm"
    embedding_size: int | None = 16
    num_memory_cells: int = 21
    memory_cell_size: int | None = None
    num_read_heads: int = 4
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
        self.require_positive("embedding_size", "num_memory_cells", "memory_cell_size", "num_read_heads")
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
