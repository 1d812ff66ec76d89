"""Small real tokenizers of the kinds that other models have, trained on a few sentences."""

import json

from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import BertTokenizer, GPT2Tokenizer, RobertaTokenizer, T5Tokenizer

SENTENCES = ["the cat sat on the mat, the cat " * 10, "A dog barks; the Cat doesn't." * 5]


def bert_tokenizer() -> BertTokenizer:
    """WordPiece: [CLS] a [SEP] b [SEP], with types."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "dog", "a", "b", "##s", "."]
    return BertTokenizer(vocab={word: number for number, word in enumerate(words)})


def gpt2_tokenizer() -> GPT2Tokenizer:
    """Byte-level BPE: nothing around a text, and no padding token."""
    vocabulary, merges = _byte_level()
    return GPT2Tokenizer(vocab=vocabulary, merges=merges)


def roberta_tokenizer() -> RobertaTokenizer:
    """Byte-level BPE: <s> a </s></s> b </s>, without types."""
    vocabulary, merges = _byte_level()
    special = ("<s>", "<pad>", "</s>", "<unk>")
    return RobertaTokenizer(
        vocab={token: number for number, token in enumerate((*special, *vocabulary))}, merges=merges
    )


def t5_tokenizer() -> T5Tokenizer:
    """Unigram, as of SentencePiece: a </s> b </s>, without types and without a token for the begin."""
    trained = Tokenizer(models.Unigram())
    trained.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=60, special_tokens=["<pad>", "</s>", "<unk>"], unk_token="<unk>", show_progress=False
    )
    trained.train_from_iterator(SENTENCES, trainer)
    return T5Tokenizer(vocab=[tuple(piece) for piece in _model(trained)["vocab"]], extra_ids=3)


OTHERS = {"bert": bert_tokenizer, "gpt2": gpt2_tokenizer, "roberta": roberta_tokenizer, "t5": t5_tokenizer}


def _byte_level() -> tuple[dict[str, int], list[tuple[str, str]]]:
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<|endoftext|>"],
        show_progress=False,
    )
    trained.train_from_iterator(SENTENCES, trainer)
    return _model(trained)["vocab"], [tuple(pair) for pair in _model(trained)["merges"]]


def _model(tokenizer: Tokenizer) -> dict:
    return json.loads(tokenizer.to_str())["model"]
