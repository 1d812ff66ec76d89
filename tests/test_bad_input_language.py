"""Bad input to causal language models, and the message of its error."""

import pytest
import torch

from support.families import LANGUAGE_BY_NAME, VOCAB_SIZE, make_language_model, make_text
from test_bad_input import check_nan_is_found


def holed(text):
    mask = text["attention_mask"].clone()
    mask[0, 5] = 0
    return {**text, "attention_mask": mask}


# mistake -> what it does to a batch, what the error says
WRONG_INPUTS = {
    "hole": (holed, "`attention_mask` has padding between the tokens of a sequence: a causal model .*pad on the left"),
    "label_too_large": (
        lambda text: {**text, "labels": torch.full_like(text["labels"], VOCAB_SIZE)},
        "`labels` holds ids from 24 to 24 but `config.vocab_size` is 24: pass token ids, or -100",
    ),
    "labels_of_other_columns": (
        lambda text: {**text, "labels": text["labels"][:, :9]},
        r"`labels` has shape \(4, 9\): expected \(4, 14\)",
    ),
    "float_labels": (
        lambda text: {**text, "labels": text["labels"].float()},
        "`labels` is a Tensor of torch.float32 with shape .*torch.long",
    ),
    "few_logits": (
        lambda text: {**text, "logits_to_keep": 2},
        "logits_to_keep is 2: labels need the logits of all tokens, leave it at 0",
    ),
    "shifted_labels_too_large": (
        lambda text: {**text, "labels": None, "shift_labels": torch.full_like(text["labels"], VOCAB_SIZE)},
        "holds ids from 24 to 24",
    ),
    "no_steps": (lambda text: {**text, "max_depth": 0}, "max_depth is 0: (it must be at least 1|layers of this model)"),
}


def test_wrong_input(language_model, text, subtests):
    for mistake, (change, message) in WRONG_INPUTS.items():
        with subtests.test(mistake), pytest.raises(ValueError, match=message):
            language_model(**change(text))


@pytest.mark.parametrize("name", ["gut", "gutlb"])
def test_masks_that_forget_the_cache(name):
    model, text = make_language_model(LANGUAGE_BY_NAME[name]), make_text(LANGUAGE_BY_NAME[name])
    ids, mask = text["input_ids"], text["attention_mask"]
    cache = model(ids[:, :6], mask[:, :6], use_cache=True).past_key_values
    with pytest.raises(ValueError, match=r"`attention_mask` has shape \(4, 3\) but .*after 6 columns in the cache"):
        model(ids[:, 6:], mask[:, 6:9], past_key_values=cache)
    # a column of padding after tokens, in a row that goes on
    later = mask.clone()
    later[:, 9] = 0
    with pytest.raises(ValueError, match="padding between the tokens of a sequence"):
        model(ids[:, 6:], later, past_key_values=cache)


@pytest.mark.parametrize("chunking", ["count", "balanced"])
@pytest.mark.parametrize("name", ["tlb", "gutlb"])
def test_chunks_that_depend_on_the_whole_row_are_not_cached(name, chunking):
    model = make_language_model(LANGUAGE_BY_NAME[name], chunking=chunking)
    text = make_text(LANGUAGE_BY_NAME[name])
    message = f"`chunking` is '{chunking}': chunks then depend on later tokens.* pass use_cache=False, or set it to"
    for call in (
        lambda: model(**text, use_cache=True),
        lambda: model.model.new_cache(),
        lambda: model.generate(text["input_ids"], max_new_tokens=2),
    ):
        with pytest.raises(ValueError, match=message):
            call()


@pytest.mark.parametrize("name", ["gut", "ut", "gutlb"])
def test_depth_that_depends_on_length_is_not_cached(name):
    model = make_language_model(LANGUAGE_BY_NAME[name], cap_depth_by_length=True)
    text = make_text(LANGUAGE_BY_NAME[name])
    for call in (lambda: model(**text, use_cache=True), lambda: model.generate(text["input_ids"], max_new_tokens=2)):
        with pytest.raises(ValueError, match=r"`cap_depth_by_length` is True: .*pass use_cache=False"):
            call()


@pytest.mark.filterwarnings("ignore:Input length of input_ids:UserWarning")
@pytest.mark.parametrize("name", ["gut", "tlb"])
def test_generate_without_a_free_position(name):
    model = make_language_model(LANGUAGE_BY_NAME[name])
    with pytest.raises(ValueError, match=r"[Ii]nput length of input_ids is 5, but `max_length` is set to 5"):
        model.generate(torch.full((1, 5), 7), max_length=5)


def test_continuous_batching_is_refused():
    with pytest.raises(ValueError, match="continuous batching caches keys and values once for each layer"):
        make_language_model(LANGUAGE_BY_NAME["gut"]).init_continuous_batching()


def test_nan_weights(language_model, language_variant, text, subtests):
    check_nan_is_found(language_model, language_variant, text, "lm_head", subtests)
