"""One table of everything this package implements."""

from dataclasses import dataclass
from importlib import import_module


@dataclass(frozen=True)
class Family:
    """A model family: where its classes live and where it comes from.

    Attributes:
        model_type: transformers' name for it.
        prefix: what its class names start with.
        heads: Auto class -> suffix of the class it makes.
        paper: the paper that describes it.
    """

    model_type: str
    prefix: str
    heads: dict[str, str]
    paper: str

    @property
    def config_class(self) -> type:
        return getattr(self._module("configuration"), f"{self.prefix}Config")

    def model_class(self, auto_class: str) -> type:
        return getattr(self._module("modeling"), self.prefix + self.heads[auto_class])

    @property
    def class_names(self) -> dict[str, str]:
        """Public class name -> module that defines it."""
        modeling = f"hf_recurrent.models.modeling_{self.model_type}"
        names = {self.prefix + suffix: modeling for suffix in self.heads.values()}
        return names | {f"{self.prefix}Config": f"hf_recurrent.models.configuration_{self.model_type}"}

    @property
    def auto_map(self) -> dict[str, str]:
        """What a checkpoint's config.json needs for `trust_remote_code=True` to find every class."""
        auto_map = {"AutoConfig": f"configuration_{self.model_type}.{self.prefix}Config"}
        for auto_class, suffix in self.heads.items():
            auto_map[auto_class] = f"modeling_{self.model_type}.{self.prefix}{suffix}"
        return auto_map

    def _module(self, kind: str):
        return import_module(f"hf_recurrent.models.{kind}_{self.model_type}")


HEADS = {
    "AutoModel": "Model",
    "AutoModelForSequenceClassification": "ForSequenceClassification",
    "AutoModelForCausalLM": "ForCausalLM",
}
SEQ2SEQ = {"AutoModelForSeq2SeqLM": "ForConditionalGeneration"}
DYNAMIC_HALT = "Investigating Recurrent Transformers with Dynamic Halt"
NEURAL_DATA_ROUTER = "The Neural Data Router: Adaptive Control Flow in Transformers Improves Systematic Generalization"

BLOCK_RECURRENT = "Block-Recurrent Transformers"
SPARSE_UNIVERSAL = "Sparse Universal Transformer"

FAMILIES = {
    family.model_type: family
    for family in (
        Family("xpos_transformer", "XPosTransformer", HEADS, DYNAMIC_HALT),
        Family("ut", "UT", HEADS, DYNAMIC_HALT),
        Family("gut", "GUT", HEADS, DYNAMIC_HALT),
        Family("tlb", "TLB", HEADS, DYNAMIC_HALT),
        Family("gutlb", "GUTLB", HEADS, DYNAMIC_HALT),
        Family("ndr", "NDR", HEADS, NEURAL_DATA_ROUTER),
        Family("rnn", "RNN", HEADS, NEURAL_DATA_ROUTER),
        Family("block_recurrent", "BlockRecurrent", HEADS, BLOCK_RECURRENT),
        Family("sut", "SUT", HEADS | SEQ2SEQ, SPARSE_UNIVERSAL),
    )
}
