"""ALBERT of transformers and PABEE (https://arxiv.org/abs/2006.04152): names of their parameters and config fields."""

from .original import Original

ALBERT = Original(
    model_type="albert",
    ours="albert_recurrent",
    prefix="Albert",
    base="albert.",
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
        "model.embed_tokens.": "albert.embeddings.word_embeddings.",
        "model.embed_positions.": "albert.embeddings.position_embeddings.",
        "model.embed_token_types.": "albert.embeddings.token_type_embeddings.",
        "model.embedding_norm.": "albert.embeddings.LayerNorm.",
        "model.embedding_proj.": "albert.encoder.embedding_hidden_mapping_in.",
        "model.groups.": "albert.encoder.albert_layer_groups.",
        "model.pooler.": "albert.pooler.",
        ".layers.": ".albert_layers.",
        ".attention.q_proj.": ".attention.query.",
        ".attention.k_proj.": ".attention.key.",
        ".attention.v_proj.": ".attention.value.",
        ".attention.o_proj.": ".attention.dense.",
        ".attention_norm.": ".attention.LayerNorm.",
        ".feed_forward.up_proj.": ".ffn.",
        ".feed_forward.down_proj.": ".ffn_output.",
        ".feed_forward_norm.": ".full_layer_layer_norm.",
        "lm_head.dense.": "predictions.dense.",
        "lm_head.norm.": "predictions.LayerNorm.",
        "lm_head.decoder.weight": "predictions.decoder.weight",
        "lm_head.decoder.bias": "predictions.bias",
    },
    head_names=("classifier.", "classifiers.", "predictions.", "qa_outputs.", "sop_classifier."),
    heads={
        "AlbertForPreTraining": "AutoModelForMaskedLM",
        "AlbertForSequenceClassificationWithPabee": "AutoModelForSequenceClassification",
    },
    # not every head reads what pools
    may_lack=("model.pooler.",),
    may_leave=("model.pooler.", "pooler."),
)
SEPARATE = {"step_classifiers": "separate"}
