"""One table of everything this package implements."""

from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType


@dataclass(frozen=True)
class Architecture:
    """An architecture: the place of its classes, and its paper.

    Attributes:
        model_type: transformers' name of the architecture.
        prefix: the beginning of its class names.
        heads: Auto class -> suffix of the class it makes.
        paper: the paper that describes it.
        adapted: names of the projections that peft's adapters are added to where their config names none.
        adapted_by_name: where there are no such projections, what to name instead.
    """

    model_type: str
    prefix: str
    heads: dict[str, str]
    paper: str
    adapted: tuple[str, ...] = ("q_proj", "v_proj")
    adapted_by_name: str = ""

    @property
    def config_class(self) -> type:
        return getattr(self._module("configuration"), f"{self.prefix}Config")

    def model_class(self, auto_class: str) -> type:
        return getattr(self._module("modeling"), self.prefix + self.heads[auto_class])

    @property
    def class_names(self) -> dict[str, str]:
        """Public class name -> module that defines it."""
        modeling = f"hf_recurrent.models.{self.model_type}.modeling_{self.model_type}"
        names = {self.prefix + suffix: modeling for suffix in self.heads.values()}
        return names | {
            f"{self.prefix}Config": f"hf_recurrent.models.{self.model_type}.configuration_{self.model_type}"
        }

    def auto_map(self, auto_classes: Iterable[str]) -> dict[str, str]:
        """The entries of a checkpoint's config.json by which `trust_remote_code=True` finds its classes."""
        modeling = {auto: f"modeling_{self.model_type}.{self.prefix}{self.heads[auto]}" for auto in auto_classes}
        return {"AutoConfig": f"configuration_{self.model_type}.{self.prefix}Config", **modeling}

    def _module(self, kind: str) -> ModuleType:
        return import_module(f"hf_recurrent.models.{self.model_type}.{kind}_{self.model_type}")


HEADS = {
    "AutoModel": "Model",
    "AutoModelForSequenceClassification": "ForSequenceClassification",
    "AutoModelForTokenClassification": "ForTokenClassification",
    "AutoModelForMaskedLM": "ForMaskedLM",
    "AutoModelForQuestionAnswering": "ForQuestionAnswering",
    "AutoModelForMultipleChoice": "ForMultipleChoice",
    "AutoModelForCausalLM": "ForCausalLM",
}
# a masked token is predicted from both sides
CAUSAL_HEADS = {auto_class: suffix for auto_class, suffix in HEADS.items() if auto_class != "AutoModelForMaskedLM"}
# whose tokens see both sides
ENCODER_HEADS = {auto_class: suffix for auto_class, suffix in HEADS.items() if auto_class != "AutoModelForCausalLM"}
SEQ2SEQ = {"AutoModelForSeq2SeqLM": "ForConditionalGeneration"}
DYNAMIC_HALT = "Investigating Recurrent Transformers with Dynamic Halt"
NEURAL_DATA_ROUTER = "The Neural Data Router: Adaptive Control Flow in Transformers Improves Systematic Generalization"

BLOCK_RECURRENT = "Block-Recurrent Transformers"
SPARSE_UNIVERSAL = "Sparse Universal Transformer"
OURO = "Scaling Latent Reasoning via Looped Language Models"
HUGINN = "Scaling up Test-Time Compute with Latent Reasoning: A Recurrent Depth Approach"
ALBERT = "ALBERT: A Lite BERT for Self-supervised Learning of Language Representations"

# a DNC has linear layers under other names, and the weights of an LSTM are no layers of their own
ADAPTED_CELLS = (
    "target_modules=['interface_proj', 'output_proj', 'read_proj'] of a DNC, or target_modules=[] with "
    "target_parameters=['lstm.weight_ih_l0', 'lstm.weight_hh_l0'] of an LSTM"
)

ARCHITECTURES = {
    architecture.model_type: architecture
    for architecture in (
        Architecture("xpos_transformer", "XPosTransformer", HEADS, DYNAMIC_HALT),
        Architecture("ut", "UT", HEADS, DYNAMIC_HALT),
        Architecture("gut", "GUT", HEADS, DYNAMIC_HALT),
        Architecture("tlb", "TLB", HEADS, DYNAMIC_HALT),
        Architecture("gutlb", "GUTLB", HEADS, DYNAMIC_HALT),
        Architecture("ndr", "NDR", HEADS, NEURAL_DATA_ROUTER),
        Architecture("rnn", "RNN", HEADS, NEURAL_DATA_ROUTER, adapted=(), adapted_by_name=ADAPTED_CELLS),
        Architecture("block_recurrent", "BlockRecurrent", CAUSAL_HEADS, BLOCK_RECURRENT),
        # queries are those of experts, which are no linear layers
        Architecture("sut", "SUT", HEADS | SEQ2SEQ, SPARSE_UNIVERSAL, adapted=("k_proj", "v_proj")),
        Architecture("albert_recurrent", "AlbertRecurrent", ENCODER_HEADS, ALBERT),
        Architecture("ouro_recurrent", "OuroRecurrent", CAUSAL_HEADS, OURO),
        Architecture("huginn_recurrent", "HuginnRecurrent", CAUSAL_HEADS, HUGINN, adapted=("qkv_proj",)),
    )
}
