"""ALBERT of transformers and PABEE (https://arxiv.org/abs/2006.04152): names of their parameters and config fields."""

import torch
from huggingface_hub.errors import StrictDataclassError

from ..models.albert_recurrent.configuration_albert_recurrent import AlbertRecurrentConfig
from ..models.albert_recurrent.modeling_albert_recurrent import (
    AlbertRecurrentForMaskedLM,
    AlbertRecurrentForSequenceClassification,
)
from .albert_run import AlbertReference
from .original import Original
from .renaming import load_renamed

LAYER = r"model\.groups\.(\d+)\.layers\.(\d+)\."
THEIR_LAYER = r"albert.encoder.albert_layer_groups.\1.albert_layers.\2."
PARTS = {
    r"attention\.q_proj\.(\w+)": r"attention.query.\3",
    r"attention\.k_proj\.(\w+)": r"attention.key.\3",
    r"attention\.v_proj\.(\w+)": r"attention.value.\3",
    r"attention\.o_proj\.(\w+)": r"attention.dense.\3",
    r"attention_norm\.(\w+)": r"attention.LayerNorm.\3",
    r"feed_forward\.up_proj\.(\w+)": r"ffn.\3",
    r"feed_forward\.down_proj\.(\w+)": r"ffn_output.\3",
    r"feed_forward_norm\.(\w+)": r"full_layer_layer_norm.\3",
}
ALBERT = Original(
    model_type="albert",
    ours="albert_recurrent",
    prefix="Albert",
    base_prefix="albert.",
    fields={
        "hidden_dropout_prob": "dropout",
        "attention_probs_dropout_prob": "attention_dropout",
        "classifier_dropout_prob": "classifier_dropout",
    },
    same_fields=(
        *("vocab_size", "type_vocab_size", "embedding_size", "hidden_size", "num_hidden_layers", "num_hidden_groups"),
        *("inner_group_num", "num_attention_heads", "intermediate_size", "hidden_act", "max_position_embeddings"),
        *("layer_norm_eps", "initializer_range", "tie_word_embeddings"),
    ),
    # of transformers' ALBERT, whose config.json leaves out what is as by default
    defaults={"hidden_size": 4096, "num_attention_heads": 64, "intermediate_size": 16384},
    names={
        r"model\.embed_tokens\.weight": "albert.embeddings.word_embeddings.weight",
        r"model\.embed_positions\.weight": "albert.embeddings.position_embeddings.weight",
        r"model\.embed_token_types\.weight": "albert.embeddings.token_type_embeddings.weight",
        r"model\.embedding_norm\.(\w+)": r"albert.embeddings.LayerNorm.\1",
        r"model\.embedding_proj\.(\w+)": r"albert.encoder.embedding_hidden_mapping_in.\1",
        **{LAYER + ours: THEIR_LAYER + theirs for ours, theirs in PARTS.items()},
        r"model\.pooler\.(\w+)": r"albert.pooler.\1",
        r"classifier\.(weight|bias)": r"classifier.\1",
        r"classifier\.(\d+)\.(\w+)": r"classifiers.\1.\2",
        r"qa_outputs\.(\w+)": r"qa_outputs.\1",
        r"lm_head\.dense\.(\w+)": r"predictions.dense.\1",
        r"lm_head\.norm\.(\w+)": r"predictions.LayerNorm.\1",
        r"lm_head\.decoder\.weight": "predictions.decoder.weight",
        r"lm_head\.decoder\.bias": "predictions.bias",
    },
    heads={
        "AlbertForPreTraining": "AutoModelForMaskedLM",
        "AlbertForSequenceClassificationWithPabee": "AutoModelForSequenceClassification",
    },
)
SEPARATE = {"step_classifiers": "separate"}


def load(case: dict, weights: dict[str, torch.Tensor]) -> AlbertReference:
    """The models of a case: a classifier, one with a classifier for each step, and a masked language model."""
    theirs = case["config"]
    fields = ALBERT.our_fields(theirs) | {"num_labels": theirs["num_labels"]}
    try:
        config, separate = AlbertRecurrentConfig(**fields), AlbertRecurrentConfig(**fields, **SEPARATE)
    except StrictDataclassError as error:
        raise ValueError(f"the case's config does not describe a valid model: {error}") from error
    models = (
        AlbertRecurrentForSequenceClassification(config),
        AlbertRecurrentForSequenceClassification(separate),
        AlbertRecurrentForMaskedLM(config),
    )
    names = [ALBERT.their_names(model) for model in models]
    used = {theirs for each in names for theirs in each}
    unused = weights.keys() - used
    if unused:
        raise ValueError(f"the weights do not fit the config: unexpected {', '.join(sorted(unused))}")
    for model, each in zip(models, names, strict=True):
        known = {theirs: ours for theirs, ours in each.items() if theirs in weights}
        load_renamed(model, {theirs: weights[theirs] for theirs in known}, known)
        model.eval()
    return AlbertReference(*models, names, case.get("regression_threshold"))
