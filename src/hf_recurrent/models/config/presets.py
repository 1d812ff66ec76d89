"""What `preset` of a config class makes: sizes of an architecture, and the halting of its paper, as fields by name.

"base" is the paper's size, all defaults; "large" is a larger model of the same paper, or twice the width where it has
none; "tiny" is the size of the CPU recipes. Sizes that are not named follow the width.

Parameters of the base models, with 32 token ids, of ALBERT with 30,000, Ouro with 49,152, Huginn with 65,536:

| | tiny | small | base | large |
|---|---|---|---|---|
| XPosTransformer | 134,912 | 2,112,512 | 8,419,328 | 33,615,872 |
| UT | 35,264 | 534,272 | 2,117,120 | 8,428,544 |
| GUT | 51,840 | 797,184 | 3,167,232 | 12,625,920 |
| TLB | 128,256 | 1,987,584 | 7,907,328 | 31,543,296 |
| GUTLB | 94,976 | 1,461,248 | 5,806,080 | 23,146,496 |
| NDR | 43,781 | 169,477 | 666,629 | 2,659,363 |
| RNN | 21,504 | 75,264 | 174,912 | 8,421,376 |
| BlockRecurrent | 742,936 | 21,259,336 | 160,495,736 | 319,882,480 |
| SUT | 68,960 | 1,372,096 | 19,761,920 | 38,685,440 |
| AlbertRecurrent | 1,032,768 | 2,825,216 | 11,683,584 | 17,683,968 |
| OuroRecurrent | 3,246,721 | 44,446,721 | 1,333,989,377 | 2,567,311,361 |
| HuginnRecurrent | 4,670,016 | 63,848,960 | 3,564,976,800 | 13,567,329,600 |
"""

Sizes = dict[str, dict[str, int]]
# by name of a paper, the halting that it trains, in fields that differ from the defaults
Papers = dict[str, dict[str, str]]

NO_PAPERS: Papers = {}
UT_PAPERS: Papers = {"dynamic_halt": {"halting": "token", "depth_objective": "mixture"}}
GUT_PAPERS: Papers = {"dynamic_halt": {"halting": "global", "depth_objective": "mixture"}}
SUT_PAPERS: Papers = {"sparse_universal": {"halting": "token", "depth_objective": "mixture"}}
# fields that are younger than some saved configs, or whose default has changed -> what the configs without them mean
NOTHING_CHANGED: dict[str, str] = {}
ALBERT_EARLIER = {"depth_objective": "mixture"}

# of a class that names no others
BASE_SIZE: Sizes = {"base": {}}
# encoders of the dynamic-halt paper
ENCODER_SIZES: Sizes = {
    "tiny": {"hidden_size": 64, "num_attention_heads": 4},
    "small": {"hidden_size": 256, "num_attention_heads": 4},
    "base": {},
    "large": {"hidden_size": 1024, "num_attention_heads": 16},
}
# of Ouro-1.4B and Ouro-2.6B
OURO_SIZES: Sizes = {
    "tiny": {"hidden_size": 64, "num_attention_heads": 4, "layers_per_step": 2},
    "small": {"hidden_size": 512, "num_attention_heads": 8, "layers_per_step": 6},
    "base": {},
    "large": {"layers_per_step": 48},
}
# base: of Huginn-0125; large: twice its width
HUGINN_SIZES: Sizes = {
    "tiny": {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 8},
    "small": {"hidden_size": 512, "num_attention_heads": 8, "num_hidden_layers": 8},
    "base": {},
    "large": {"hidden_size": 10_560},
}
# of ALBERT base and large, version 2
ALBERT_SIZES: Sizes = {
    "tiny": {"embedding_size": 32, "hidden_size": 64, "num_attention_heads": 4},
    "small": {"embedding_size": 64, "hidden_size": 256},
    "base": {},
    "large": {"hidden_size": 1024, "num_hidden_layers": 24},
}
# large: the paper's NDR on ListOps
NDR_SIZES: Sizes = {
    "tiny": {"hidden_size": 64},
    "small": {"hidden_size": 128},
    "base": {},
    "large": {"hidden_size": 512, "num_attention_heads": 16, "num_hidden_layers": 20},
}
# large: the paper's LSTM on ListOps
RNN_SIZES: Sizes = {
    "tiny": {"hidden_size": 64},
    "small": {"hidden_size": 128},
    "base": {},
    "large": {"hidden_size": 512, "num_hidden_layers": 4, "embedding_size": 512},
}
# large: the paper's Rec:fixed:skip:large
BLOCK_RECURRENT_SIZES: Sizes = {
    "tiny": {
        "hidden_size": 128,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "window_size": 64,
        "num_state_vectors": 64,
    },
    "small": {"hidden_size": 512, "num_hidden_layers": 6, "window_size": 256, "num_state_vectors": 256},
    "base": {},
    "large": {"num_attention_heads": 16, "head_dim": 128, "intermediate_size": 8192},
}
# large: the paper's SUT big; small: its recipe for logical inference
SUT_SIZES: Sizes = {
    "tiny": {
        "hidden_size": 64,
        "attention_experts": 4,
        "attention_experts_per_token": 2,
        "num_attention_heads": 2,
        "head_dim": 16,
        "feed_forward_experts": 4,
        "feed_forward_experts_per_token": 2,
    },
    "small": {
        "hidden_size": 256,
        "attention_experts": 12,
        "num_attention_heads": 2,
        "feed_forward_experts": 12,
        "intermediate_size": 128,
    },
    "base": {},
    "large": {"attention_experts": 48, "feed_forward_experts": 48},
}
