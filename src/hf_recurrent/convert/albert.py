"""ALBERT of transformers and PABEE (https://arxiv.org/abs/2006.04152): names of their parameters and config fields."""

from .original import Original, unchanged

ALBERT = Original(
    model_type="albert",
    ours="albert_recurrent",
    prefix="Albert",
    base="albert.",
    fields={
        "hidden_dropout_prob": "dropout",
        "attention_probs_dropout_prob": "attention_dropout",
        "classifier_dropout_prob": "classifier_dropout",
        **unchanged("vocab_size", "type_vocab_size", "embedding_size", "hidden_size", "intermediate_size"),
        **unchanged("num_hidden_layers", "num_hidden_groups", "inner_group_num", "num_attention_heads", "hidden_act"),
        **unchanged("max_position_embeddings", "layer_norm_eps", "initializer_range", "tie_word_embeddings"),
    },
    # of transformers' ALBERT, whose config.json leaves out what is as by default
    defaults={"hidden_size": 4096, "num_attention_heads": 64, "intermediate_size": 16384},
    names={
        "albert.embeddings.word_embeddings.": "model.embed_tokens.",
        "albert.embeddings.position_embeddings.": "model.embed_positions.",
        "albert.embeddings.token_type_embeddings.": "model.embed_token_types.",
        "albert.embeddings.LayerNorm.": "model.embedding_norm.",
        "albert.encoder.embedding_hidden_mapping_in.": "model.embedding_proj.",
        "albert.encoder.albert_layer_groups.": "model.groups.",
        "albert.pooler.": "model.pooler.",
        ".albert_layers.": ".layers.",
        ".attention.query.": ".attention.q_proj.",
        ".attention.key.": ".attention.k_proj.",
        ".attention.value.": ".attention.v_proj.",
        ".attention.dense.": ".attention.o_proj.",
        ".attention.LayerNorm.": ".attention_norm.",
        ".ffn.": ".feed_forward.up_proj.",
        ".ffn_output.": ".feed_forward.down_proj.",
        ".full_layer_layer_norm.": ".feed_forward_norm.",
        "predictions.dense.": "lm_head.dense.",
        "predictions.LayerNorm.": "lm_head.norm.",
        "predictions.decoder.weight": "lm_head.decoder.weight",
        "predictions.bias": "lm_head.decoder.bias",
    },
    head_names=("classifier.", "classifiers.", "lm_head.", "predictions.", "qa_outputs.", "sop_classifier."),
    heads={
        "AlbertForPreTraining": "AutoModelForMaskedLM",
        "AlbertForSequenceClassificationWithPabee": "AutoModelForSequenceClassification",
    },
    # not every head reads what pools
    may_lack=("model.pooler.",),
    may_leave=("model.pooler.",),
)
SEPARATE = {"step_classifiers": "separate"}
