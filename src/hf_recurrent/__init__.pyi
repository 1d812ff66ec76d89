"""The public names as type checkers see them: `__init__.py` imports each when it is first used."""

from .analysis.evaluate import evaluate
from .benchmarks import load_benchmark
from .convert import from_pretrained_recurrent
from .hub.checkpoint import save_checkpoint
from .models.albert_recurrent.configuration_albert_recurrent import AlbertRecurrentConfig
from .models.albert_recurrent.modeling_albert_recurrent import (
    AlbertRecurrentForMaskedLM,
    AlbertRecurrentForMultipleChoice,
    AlbertRecurrentForQuestionAnswering,
    AlbertRecurrentForSequenceClassification,
    AlbertRecurrentForTokenClassification,
    AlbertRecurrentModel,
)
from .models.block_recurrent.configuration_block_recurrent import BlockRecurrentConfig
from .models.block_recurrent.modeling_block_recurrent import (
    BlockRecurrentForCausalLM,
    BlockRecurrentForMultipleChoice,
    BlockRecurrentForQuestionAnswering,
    BlockRecurrentForSequenceClassification,
    BlockRecurrentForTokenClassification,
    BlockRecurrentModel,
)
from .models.gut.configuration_gut import GUTConfig
from .models.gut.modeling_gut import (
    GUTForCausalLM,
    GUTForMaskedLM,
    GUTForMultipleChoice,
    GUTForQuestionAnswering,
    GUTForSequenceClassification,
    GUTForTokenClassification,
    GUTModel,
)
from .models.gutlb.configuration_gutlb import GUTLBConfig
from .models.gutlb.modeling_gutlb import (
    GUTLBForCausalLM,
    GUTLBForMaskedLM,
    GUTLBForMultipleChoice,
    GUTLBForQuestionAnswering,
    GUTLBForSequenceClassification,
    GUTLBForTokenClassification,
    GUTLBModel,
)
from .models.huginn_recurrent.configuration_huginn_recurrent import HuginnRecurrentConfig
from .models.huginn_recurrent.modeling_huginn_recurrent import (
    HuginnRecurrentForCausalLM,
    HuginnRecurrentForMultipleChoice,
    HuginnRecurrentForQuestionAnswering,
    HuginnRecurrentForSequenceClassification,
    HuginnRecurrentForTokenClassification,
    HuginnRecurrentModel,
)
from .models.ndr.configuration_ndr import NDRConfig
from .models.ndr.modeling_ndr import (
    NDRForCausalLM,
    NDRForMaskedLM,
    NDRForMultipleChoice,
    NDRForQuestionAnswering,
    NDRForSequenceClassification,
    NDRForTokenClassification,
    NDRModel,
)
from .models.ouro_recurrent.configuration_ouro_recurrent import OuroRecurrentConfig
from .models.ouro_recurrent.modeling_ouro_recurrent import (
    OuroRecurrentForCausalLM,
    OuroRecurrentForMultipleChoice,
    OuroRecurrentForQuestionAnswering,
    OuroRecurrentForSequenceClassification,
    OuroRecurrentForTokenClassification,
    OuroRecurrentModel,
)
from .models.rnn.configuration_rnn import RNNConfig
from .models.rnn.modeling_rnn import (
    RNNForCausalLM,
    RNNForMaskedLM,
    RNNForMultipleChoice,
    RNNForQuestionAnswering,
    RNNForSequenceClassification,
    RNNForTokenClassification,
    RNNModel,
)
from .models.sut.configuration_sut import SUTConfig
from .models.sut.modeling_sut import (
    SUTForCausalLM,
    SUTForConditionalGeneration,
    SUTForMaskedLM,
    SUTForMultipleChoice,
    SUTForQuestionAnswering,
    SUTForSequenceClassification,
    SUTForTokenClassification,
    SUTModel,
)
from .models.tlb.configuration_tlb import TLBConfig
from .models.tlb.modeling_tlb import (
    TLBForCausalLM,
    TLBForMaskedLM,
    TLBForMultipleChoice,
    TLBForQuestionAnswering,
    TLBForSequenceClassification,
    TLBForTokenClassification,
    TLBModel,
)
from .models.ut.configuration_ut import UTConfig
from .models.ut.modeling_ut import (
    UTForCausalLM,
    UTForMaskedLM,
    UTForMultipleChoice,
    UTForQuestionAnswering,
    UTForSequenceClassification,
    UTForTokenClassification,
    UTModel,
)
from .models.xpos_transformer.configuration_xpos_transformer import XPosTransformerConfig
from .models.xpos_transformer.modeling_xpos_transformer import (
    XPosTransformerForCausalLM,
    XPosTransformerForMaskedLM,
    XPosTransformerForMultipleChoice,
    XPosTransformerForQuestionAnswering,
    XPosTransformerForSequenceClassification,
    XPosTransformerForTokenClassification,
    XPosTransformerModel,
)
from .registry import ARCHITECTURES

__version__: str

__all__ = [
    "ARCHITECTURES",
    "AlbertRecurrentConfig",
    "AlbertRecurrentForMaskedLM",
    "AlbertRecurrentForMultipleChoice",
    "AlbertRecurrentForQuestionAnswering",
    "AlbertRecurrentForSequenceClassification",
    "AlbertRecurrentForTokenClassification",
    "AlbertRecurrentModel",
    "BlockRecurrentConfig",
    "BlockRecurrentForCausalLM",
    "BlockRecurrentForMultipleChoice",
    "BlockRecurrentForQuestionAnswering",
    "BlockRecurrentForSequenceClassification",
    "BlockRecurrentForTokenClassification",
    "BlockRecurrentModel",
    "GUTConfig",
    "GUTForCausalLM",
    "GUTForMaskedLM",
    "GUTForMultipleChoice",
    "GUTForQuestionAnswering",
    "GUTForSequenceClassification",
    "GUTForTokenClassification",
    "GUTLBConfig",
    "GUTLBForCausalLM",
    "GUTLBForMaskedLM",
    "GUTLBForMultipleChoice",
    "GUTLBForQuestionAnswering",
    "GUTLBForSequenceClassification",
    "GUTLBForTokenClassification",
    "GUTLBModel",
    "GUTModel",
    "HuginnRecurrentConfig",
    "HuginnRecurrentForCausalLM",
    "HuginnRecurrentForMultipleChoice",
    "HuginnRecurrentForQuestionAnswering",
    "HuginnRecurrentForSequenceClassification",
    "HuginnRecurrentForTokenClassification",
    "HuginnRecurrentModel",
    "NDRConfig",
    "NDRForCausalLM",
    "NDRForMaskedLM",
    "NDRForMultipleChoice",
    "NDRForQuestionAnswering",
    "NDRForSequenceClassification",
    "NDRForTokenClassification",
    "NDRModel",
    "OuroRecurrentConfig",
    "OuroRecurrentForCausalLM",
    "OuroRecurrentForMultipleChoice",
    "OuroRecurrentForQuestionAnswering",
    "OuroRecurrentForSequenceClassification",
    "OuroRecurrentForTokenClassification",
    "OuroRecurrentModel",
    "RNNConfig",
    "RNNForCausalLM",
    "RNNForMaskedLM",
    "RNNForMultipleChoice",
    "RNNForQuestionAnswering",
    "RNNForSequenceClassification",
    "RNNForTokenClassification",
    "RNNModel",
    "SUTConfig",
    "SUTForCausalLM",
    "SUTForConditionalGeneration",
    "SUTForMaskedLM",
    "SUTForMultipleChoice",
    "SUTForQuestionAnswering",
    "SUTForSequenceClassification",
    "SUTForTokenClassification",
    "SUTModel",
    "TLBConfig",
    "TLBForCausalLM",
    "TLBForMaskedLM",
    "TLBForMultipleChoice",
    "TLBForQuestionAnswering",
    "TLBForSequenceClassification",
    "TLBForTokenClassification",
    "TLBModel",
    "UTConfig",
    "UTForCausalLM",
    "UTForMaskedLM",
    "UTForMultipleChoice",
    "UTForQuestionAnswering",
    "UTForSequenceClassification",
    "UTForTokenClassification",
    "UTModel",
    "XPosTransformerConfig",
    "XPosTransformerForCausalLM",
    "XPosTransformerForMaskedLM",
    "XPosTransformerForMultipleChoice",
    "XPosTransformerForQuestionAnswering",
    "XPosTransformerForSequenceClassification",
    "XPosTransformerForTokenClassification",
    "XPosTransformerModel",
    "__version__",
    "evaluate",
    "from_pretrained_recurrent",
    "load_benchmark",
    "save_checkpoint",
]
