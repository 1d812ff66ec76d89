"""The card of a finished run of `run_seq2seq.py`."""

import datetime
from typing import Any

from ..hub import CardData
from ..hub.card import Example, Plot
from ..hub.tasks import TRANSLATION
from ..registry import ARCHITECTURES
from ..templating import percent
from .arguments import DataArguments, ReportArguments
from .card import PAPERS, RunFacts, benchmark_facts, history, limitations, training_facts
from .evaluation import Evaluation
from .objectives import PAIR_COLUMNS, SEQ2SEQ
from .seq2seq_evaluation import Decoding
from .seq2seq_paper import pair_results, paper_row


def claim(title: str, split: str, table: dict[str, Any]) -> str:
    """What the model does and how well, in one sentence."""
    if "bleu" in table:
        done = f"BLEU of {table['bleu']:.1f} on the {table['n']:,} pairs of the `{split}` split"
    else:
        done = (
            f"{percent(table['accuracy'])} of the {table['n']:,} targets of the `{split}` split written exactly, where "
            f"the most frequent one gives {percent(table['majority_baseline'])}"
        )
    if table["fixed_depth"]:
        return f"{title}: {done}, in a fixed {table['max_steps']} depth steps."
    own = table["decoder"]
    return (
        f"{title}: {done}, in {table['steps']['mean']:.1f} of at most {table['max_steps']} depth steps of the encoder "
        f"and {own['steps']['mean']:.1f} of {own['max_steps']} of the decoder on average."
    )


def pair_card(
    model: Any,
    data: DataArguments,
    run: ReportArguments,
    evaluation: Evaluation,
    facts: RunFacts,
    decoding: Decoding,
    longest_target: int,
) -> CardData:
    """Everything the card of this run says; `longest_target` in tokens, of its first split."""
    config, tables = model.config, evaluation.tables
    split, table = next(iter(tables.items()))
    family = ARCHITECTURES[config.model_type]
    title = run.title or f"{family.prefix} on {data.benchmark}"
    row = paper_row(run, data, config, facts.changes)
    example = Example(evaluation.example[PAIR_COLUMNS[0]], answer=evaluation.example[PAIR_COLUMNS[1]])
    options = decoding.options(longest_target)
    return CardData(
        model_name=title,
        repo_id=facts.hub_model_id or facts.name,
        family=config.model_type,
        claim=claim(title, split, table),
        notice=run.notice,
        task=TRANSLATION,
        metric="bleu" if "bleu" in table else "exact_match",
        max_steps=config.num_hidden_layers,
        halting=table["halting"],
        decoding={"length_penalty": decoding.length_penalty}
        | {name: options[name] for name in ("num_beams", "max_new_tokens")},
        paper=PAPERS[family.paper],
        benchmark=benchmark_facts(data, run.dataset_id),
        training=training_facts(model, run, facts, SEQ2SEQ.script),
        results=pair_results(tables, row, data.benchmark_config),
        example=example,
        limitations=[*limitations(data.benchmark, tables, SEQ2SEQ), *history(facts, config)],
        plots=[Plot(**plot, split=split) for plot in evaluation.plots],
        date=datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
    )
