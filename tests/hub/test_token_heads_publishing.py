"""Checkpoints with heads for tokens, spans and choices: what is checked before they are published."""

import pytest

from hf_recurrent.hub.card import task_for
from hf_recurrent.hub.checkpoint import save_checkpoint
from hf_recurrent.hub.publish import publish_checkpoint
from hf_recurrent.tasks import OF_TEXTS
from hf_recurrent.tasks.checkpoints import read_task
from support.families import nightly
from support.token_heads import NEW_HEADS, TOKENS, make_head
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
        read_task(str(tmp_path), {}, OF_TEXTS)
