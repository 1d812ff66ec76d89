"""Tools for language models and for embeddings of sentences."""

import torch

from hf_recurrent import save_checkpoint
from support.tokenizer import make_tokenizer

from .door import Room
from .models import BASE, ENCODERS, LANGUAGE, compute, live

ROOM = Room("Evaluation and embeddings")
QUESTIONS = [("w4 w9", " w5"), ("w23 w11 w6 w8", " w9 w4"), ("w5", " w10")]


@ROOM.door("lm-eval", ENCODERS, ["lm_eval"])
def enter_harness(architecture, folder):
    """Log-likelihoods of continuations, and a text that is generated."""
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM

    model, tokenizer = live(architecture, LANGUAGE), make_tokenizer()
    harness = HFLM(pretrained=model, tokenizer=tokenizer, batch_size=2, device="cpu", add_bos_token=False)
    found = harness.loglikelihood(
        [Instance("loglikelihood", {}, question, number) for number, question in enumerate(QUESTIONS)]
    )
    for (context, continuation), (likelihood, _) in zip(QUESTIONS, found, strict=True):
        start, ids = (tokenizer.encode(text, add_special_tokens=False) for text in (context, context + continuation))
        logits = compute(model, {"input_ids": torch.tensor([ids])}).logits[0].log_softmax(-1)
        expected = sum(logits[place - 1, ids[place]] for place in range(len(start), len(ids)))
        torch.testing.assert_close(torch.tensor(likelihood), expected, rtol=1e-4, atol=1e-4)
    options = {"until": ["w7"], "max_gen_toks": 3, "do_sample": False}
    (text,) = harness.generate_until([Instance("generate_until", {}, ("w4 w9", options), 0)])
    assert set(text.split()) <= set(tokenizer.get_vocab())


@ROOM.door("sentence-transformers", packages=["sentence-transformers"])
def enter_embeddings(architecture, folder):
    """Embeds, is trained, saved and loaded."""
    from sentence_transformers import SentenceTransformer, losses, models

    model, tokenizer = live(architecture, BASE), make_tokenizer()
    save_checkpoint(model, folder / "base", tokenizer)
    transformer = models.Transformer(str(folder / "base"))
    embedder = SentenceTransformer(
        modules=[transformer, models.Pooling(model.config.hidden_size, "mean")], device="cpu"
    )
    sentences = ["w4 w9 w5", "w23 w11 w6 w8"]
    found = embedder.encode(sentences, convert_to_tensor=True)
    for sentence, vector in zip(sentences, found, strict=True):
        states = compute(model, tokenizer(sentence, return_tensors="pt")).last_hidden_state
        torch.testing.assert_close(vector, states[0].mean(0), rtol=1e-4, atol=1e-4)
    loss = losses.MultipleNegativesRankingLoss(embedder)
    features = [embedder.tokenize([sentence, "w7"]) for sentence in sentences]
    loss(features, labels=None).backward()
    torch.optim.SGD(embedder.parameters(), lr=0.1).step()
    trained = embedder.encode(sentences, convert_to_tensor=True)
    assert not torch.allclose(trained, found, atol=1e-4)
    embedder.save(str(folder / "trained"))
    again = SentenceTransformer(str(folder / "trained"), device="cpu").encode(sentences, convert_to_tensor=True)
    torch.testing.assert_close(again, trained)
