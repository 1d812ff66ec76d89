"""The public names as type checkers see them: `__init__.py` imports each when it is first used."""

from .benchmarks import load_benchmark
from .convert import load_reference
from .hub.checkpoint import save_checkpoint
from .models.block_recurrent.configuration_block_recurrent import BlockRecurrentConfig
from .models.block_recurrent.modeling_block_recurrent import (
    BlockRecurrentForCausalLM,
    BlockRecurrentForSequenceClassification,
    BlockRecurrentModel,
)
from .models.gut.configuration_gut import GUTConfig
from .models.gut.modeling_gut import GUTForCausalLM, GUTForSequenceClassification, GUTModel
from .models.gutlb.configuration_gutlb import GUTLBConfig
from .models.gutlb.modeling_gutlb import GUTLBForCausalLM, GUTLBForSequenceClassification, GUTLBModel
from .models.ndr.configuration_ndr import NDRConfig
from .models.ndr.modeling_ndr import NDRForCausalLM, NDRForSequenceClassification, NDRModel
from .models.rnn.configuration_rnn import RNNConfig
from .models.rnn.modeling_rnn import RNNForCausalLM, RNNForSequenceClassification, RNNModel
from .models.sut.configuration_sut import SUTConfig
from .models.sut.modeling_sut import SUTForCausalLM, SUTForConditionalGeneration, SUTForSequenceClassification, SUTModel
from .models.tlb.configuration_tlb import TLBConfig
from .models.tlb.modeling_tlb import TLBForCausalLM, TLBForSequenceClassification, TLBModel
from .models.ut.configuration_ut import UTConfig
from .models.ut.modeling_ut import UTForCausalLM, UTForSequenceClassification, UTModel
from .models.xpos_transformer.configuration_xpos_transformer import XPosTransformerConfig
from .models.xpos_transformer.modeling_xpos_transformer import (
    XPosTransformerForCausalLM,
    XPosTransformerForSequenceClassification,
    XPosTransformerModel,
)
from .registry import ARCHITECTURES

__version__: str

__all__ = [
    "ARCHITECTURES",
    "BlockRecurrentConfig",
    "BlockRecurrentForCausalLM",
    "BlockRecurrentForSequenceClassification",
    "BlockRecurrentModel",
    "GUTConfig",
    "GUTForCausalLM",
    "GUTForSequenceClassification",
    "GUTLBConfig",
    "GUTLBForCausalLM",
    "GUTLBForSequenceClassification",
    "GUTLBModel",
    "GUTModel",
    "NDRConfig",
    "NDRForCausalLM",
    "NDRForSequenceClassification",
    "NDRModel",
    "RNNConfig",
    "RNNForCausalLM",
    "RNNForSequenceClassification",
    "RNNModel",
    "SUTConfig",
    "SUTForCausalLM",
    "SUTForConditionalGeneration",
    "SUTForSequenceClassification",
    "SUTModel",
    "TLBConfig",
    "TLBForCausalLM",
    "TLBForSequenceClassification",
    "TLBModel",
    "UTConfig",
    "UTForCausalLM",
    "UTForSequenceClassification",
    "UTModel",
    "XPosTransformerConfig",
    "XPosTransformerForCausalLM",
    "XPosTransformerForSequenceClassification",
    "XPosTransformerModel",
    "__version__",
    "load_benchmark",
    "load_reference",
    "save_checkpoint",
]
