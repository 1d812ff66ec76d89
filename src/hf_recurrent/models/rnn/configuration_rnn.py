"""Configuration of recurrent baselines: LSTM, bidirectional LSTM and differentiable neural computer (DNC)."""

from dataclasses import replace
from typing import Literal

from ..config.base import Capabilities, RecurrentConfig
from ..config.fields import length, size


class RNNConfig(RecurrentConfig):
    """Configuration of `RNNModel`, the recurrent baselines of "The Neural Data Router" (section 3, Tables 7 to 9).

    Defaults are the paper's LSTM on compositional table lookup; `cell` selects the paper's two other baselines. On
    simple arithmetic the paper uses 2 layers and `embedding_size=None`; on ListOps 4 layers of width 512,
    `embedding_size=None` and a dropout of 0.1.

    In the authors' code sequences have no BOS token, a BiLSTM also processes the EOS token, and an LSTM and a DNC stop
    before it.

    Parameters by default: 174,912 (`RNNModel`).

    Args:
        num_hidden_layers: number of stacked LSTM layers; in a DNC, of its controller.
        dropout: dropout probability of the embeddings, and between the layers of an LSTM.
        pooling: representation of a sequence: the "mean" over its tokens, the last state ("end"), or the first token
            ("cls"). In a BiLSTM, "end" joins the last forward state and the first backward state.
        cell: recurrent cell: an "lstm", a "bilstm" (each direction has half of `hidden_size`, as in the authors' code),
            or a "dnc" (differentiable neural computer).
        embedding_size: width of the token embeddings; `hidden_size` if None.
        num_memory_cells: number of memory cells of a DNC, M.
        memory_cell_size: width of a memory cell, W; `hidden_size` if None, as in the authors' code.
        num_read_heads: number of read heads of a DNC, R.
        memory_masking: whether a DNC searches its memory by a selected part of each cell. This option and the next two
            are the improvements of Csordas and Schmidhuber (2019), with which the paper reports the DNC; the paper's
            code omits this one.
        memory_deallocation: whether a DNC erases cells when they are freed.
        link_sharpening: whether a DNC sharpens its temporal links.
    """

    model_type = "rnn"
    # large: the paper's LSTM on ListOps
    presets = {
        "tiny": {"hidden_size": 64},
        "small": {"hidden_size": 128},
        "base": {},
        "large": {"hidden_size": 512, "num_hidden_layers": 4, "embedding_size": 512},
    }

    hidden_size: int = 200
    num_hidden_layers: int = 1
    dropout: float = 0.5
    pooling: Literal["mean", "end", "cls"] = "end"
    classifier: Literal["linear", "mlp"] = "linear"
    initializer_range: float = 1.0
    cell: Literal["lstm", "bilstm", "dnc"] = "lstm"
    embedding_size: int | None = size(16)
    num_memory_cells: int = length(21)
    memory_cell_size: int | None = size(None)
    num_read_heads: int = size(4)
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
            self.require(self.hidden_size % 2 == 0, "hidden_size", "a bilstm has two halves: make it even")
            self.require(
                not self.is_causal,
                "cell",
                "its states depend on later tokens, so it is no causal language model: use 'lstm' or 'dnc'",
            )
        self.require(
            not self.tie_word_embeddings or self.embedding_size == self.hidden_size,
            "tie_word_embeddings",
            f"embeddings are {self.embedding_size} wide and states {self.hidden_size}: make embedding_size equal",
        )


__all__ = ["RNNConfig"]
