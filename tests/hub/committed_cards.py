"""Galleries of the committed checkpoints."""

import json
import shutil

from hf_recurrent.hub.gallery import refresh
from hf_recurrent.hub.staging import is_publishable
from support.checkpoints import GUT_LISTOPS, MODEL_CARDS

# committed classifiers: those of expressions; what differs for language models is tested with their cards
CLASSIFIERS = {
    path.parent.name: path.parent
    for path in sorted(
        [*MODEL_CARDS.glob("*/config.json"), GUT_LISTOPS / "config.json"], key=lambda path: path.parent.name
    )
    if json.loads(path.read_text())["architectures"][0].endswith("ForSequenceClassification")
}


def copy_cards(target, names=CLASSIFIERS):
    """What belongs into a gallery of the committed classifiers, with its rendered files up to date."""
    for name in names:
        for source in sorted(CLASSIFIERS[name].glob("**/*")):
            path = source.relative_to(CLASSIFIERS[name])
            if source.is_file() and source.suffix != ".py" and is_publishable(path.as_posix()):
                (target / name / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, target / name / path)
    refresh(target)
    return target
