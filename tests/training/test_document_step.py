"""A step over long documents: losses and gradients do not depend on how rows are grouped, and stop at segments."""

import pytest
import torch
from accelerate import Accelerator
from document_runs import MODELS, language_model, token_corpus

from hf_recurrent import BlockRecurrentConfig, UTConfig
from hf_recurrent.documents import DocumentReader
from hf_recurrent.training.document_loop import check_segment_length, require_constant_state, train_step

DOCUMENTS = token_corpus(30, 3, 21, 1, 12, 40, 9)


def gradients(model) -> dict[str, torch.Tensor]:
    """By name; a norm for pooling has none in a language model."""
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def gradients_of(model_type, groups, batch_size=4, steps=3, **changes):
    """Gradients and sums of some steps without updates, so that only states go on."""
    model = language_model(model_type, **changes).train()
    accelerator = Accelerator(cpu=True)
    reader = DocumentReader(DOCUMENTS, batch_size, 8, rewind=True)
    caches = [model.model.new_cache() for _ in range(groups)]
    found = []
    for _ in range(steps):
        model.zero_grad()
        sums = train_step(accelerator, model, reader.next_segment(), caches)
        found.append((sums, gradients(model)))
    return found


@pytest.mark.parametrize("model_type", MODELS)
@pytest.mark.parametrize("groups", [2, 4])
def test_accumulated_groups_equal_one_batch(model_type, groups):
    for whole, parts in zip(gradients_of(model_type, 1), gradients_of(model_type, groups), strict=True):
        assert whole[0][1] == parts[0][1]
        torch.testing.assert_close(whole[0][0], parts[0][0], rtol=1e-6, atol=0)
        assert len(whole[1]) > 8
        for name, gradient in whole[1].items():
            torch.testing.assert_close(parts[1][name], gradient, rtol=1e-4, atol=1e-7, msg=name)


def test_loss_is_the_mean_over_labelled_tokens():
    model = language_model("tlb").train()
    segment = DocumentReader(DOCUMENTS, 4, 8).next_segment()
    caches = [model.model.new_cache() for _ in range(2)]
    sums = train_step(Accelerator(cpu=True), model, segment, caches)
    ours = gradients(model)
    model.zero_grad()
    logits = model(segment.input_ids, segment.attention_mask).logits
    nats = torch.nn.functional.cross_entropy(logits.flatten(0, 1), segment.labels.flatten(), reduction="none")
    (nats.sum() / (segment.labels >= 0).sum()).backward()
    assert sums[1] == (segment.labels >= 0).sum() == 8 + 2 + 8 + 0
    assert sums[0].item() == pytest.approx(nats.sum().item(), rel=1e-6)
    for name, gradient in gradients(model).items():
        torch.testing.assert_close(ours[name], gradient, rtol=1e-4, atol=1e-7, msg=name)


@pytest.mark.parametrize("model_type", MODELS)
def test_state_goes_on_without_gradient(model_type):
    model = language_model(model_type).train()
    reader = DocumentReader(token_corpus(16), 1, 8)
    first, second = reader
    caches = [model.model.new_cache()]
    accelerator = Accelerator(cpu=True)
    train_step(accelerator, model, first, caches)
    assert any(tensor.requires_grad for layer in caches[0].layers for tensor in layer.contents().values())
    model.zero_grad()
    carried = train_step(accelerator, model, second, caches)
    # the graph of the first segment was freed: backward would have failed on it
    whole = model(torch.cat((first.input_ids, second.input_ids), 1)).logits[0, 8:]
    expected = torch.nn.functional.cross_entropy(whole, second.labels[0], reduction="sum")
    assert carried[0].item() == pytest.approx(expected.item(), rel=1e-5)
    fresh = train_step(accelerator, model, second, [model.model.new_cache()])
    assert fresh[0].item() != pytest.approx(expected.item(), rel=1e-5)


@pytest.mark.parametrize("model_type", ["ut", "gut", "xpos_transformer", "ndr"])
def test_models_whose_cache_grows_are_refused(model_type):
    with pytest.raises(ValueError, match=f"model_type is '{model_type}', whose cache grows.* tlb, gutlb, rnn"):
        require_constant_state(language_model(model_type).config)


def test_chunks_that_depend_on_the_whole_document_are_refused():
    require_constant_state(language_model("tlb").config)
    with pytest.raises(ValueError, match="chunking is 'count'"):
        require_constant_state(language_model("tlb", chunking="count").config)


def test_segments_consist_of_windows():
    config = BlockRecurrentConfig(window_size=512)
    check_segment_length(config, 4096)
    with pytest.raises(ValueError, match=r"segment_length is 4000 and config\.window_size 512.* such as 4096"):
        check_segment_length(config, 4000)
    with pytest.raises(ValueError, match="such as 512"):
        check_segment_length(config, 100)
    check_segment_length(UTConfig(), 4000)
