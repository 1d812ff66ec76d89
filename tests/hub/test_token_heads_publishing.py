"""Checkpoints with heads for tokens, spans and choices: their cards, and what is checked before they are published."""

import pytest
from card_factory import make_card
from huggingface_hub import ModelCard

from hf_recurrent.hub.card import render_card
from hf_recurrent.hub.checkpoint import save_checkpoint
from hf_recurrent.hub.publish import publish_checkpoint
from hf_recurrent.hub.tasks import TASKS, task_for
from hf_recurrent.training.evaluate import read_objective
from support.families import nightly
from support.token_heads import CHOICE, MASKED, NEW_HEADS, TOKENS, make_head
from support.tokenizer import make_tokenizer

CARD = """---
license: apache-2.0
library_name: transformers
pipeline_tag: {task}
tags: [hf_recurrent, custom_code]
metrics: [accuracy]
model-index: [{{name: tiny, results: []}}]
hf_recurrent: {{family: gut}}
---

# A tiny model
"""


def usage_of(text: str) -> list[str]:
    """The blocks of Python in the usage section."""
    section = text.partition("## Usage")[2].partition("\n## ")[0]
    return [block.partition("```")[0] for block in section.split("```python\n")[1:]]


@pytest.mark.parametrize("head", NEW_HEADS)
def test_cards_say_how_to_ask(head):
    task = task_for(head)
    text = render_card(make_card(task=task))
    assert ModelCard(text).data.pipeline_tag == task
    blocks = usage_of(text)
    for block in blocks:
        compile(block, "usage", "exec")
    assert f"model = {head}.from_pretrained(name)" in blocks[0]
    assert TASKS[task].answer in blocks[0]
    assert "generate" not in text.partition("## Usage")[2]
    assert (f'pipeline("{task}", ' in text) == (head in (TOKENS, MASKED))
    assert ("value[None]" in blocks[0]) == (head == CHOICE)


@pytest.mark.slow
@pytest.mark.parametrize("head", [NEW_HEADS[0], *map(nightly, NEW_HEADS[1:])])
def test_checkpoints_are_reloaded_before_they_are_published(head, tmp_path):
    folder = save_checkpoint(make_head("gut", head), tmp_path / "run", make_tokenizer())
    (folder / "README.md").write_text(CARD.format(task=task_for(head)))
    published = publish_checkpoint(folder, "org/tiny", dry_run=True)
    assert {"model.safetensors", "modeling_gut.py", "README.md"} <= set(published.files)


def test_commands_for_other_heads_refuse_them(tmp_path):
    save_checkpoint(make_head("gut", TOKENS), tmp_path)
    message = "is of GUTForTokenClassification, which this command cannot run: .*a sequence classifier, or a causal"
    with pytest.raises(ValueError, match=message):
        read_objective(str(tmp_path), {})
