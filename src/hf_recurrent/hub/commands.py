"""Commands that a card shows."""

import json
import shlex

from ..benchmarks import benchmark_info
from ..metrics.serialize import plain
from .card_data import CardData

LIMIT = "max_eval_samples"


def evaluation_command(data: CardData) -> str | None:
    """The command that evaluates the checkpoint again on the test splits of its own configuration.

    None where it was evaluated on the authors' own files, which not everybody has.
    """
    benchmark = data.benchmark
    defaults = benchmark_info(benchmark.name).parameters.get(benchmark.config, {})
    given = {**benchmark.parameters, "seed": benchmark.seed}
    if "rows" in given or not any(name in given for name in defaults if name != "seed"):
        return None
    words = ["hf-recurrent", "evaluate", data.repo_id, benchmark.name, "--config", benchmark.config]
    for name, default in defaults.items():
        if name in given and plain(given[name]) != plain(default):
            words += ["--set", f"{name}={json.dumps(plain(given[name]), separators=(',', ':'))}"]
    if data.of_documents:
        words += ["--segment-length", str(data.results[0].table["segment_length"])]
    if LIMIT in given:
        words += ["--limit", str(given[LIMIT])]
    return shlex.join(words)
