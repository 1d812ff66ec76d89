"""The day on a GPU: its runner, its report, its estimates, the imitated device, and the whole rehearsal."""

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import TrainingArguments

from gpu import (
    catalogue,
    checks,
    correct,
    day,
    device,
    further,
    graphs,
    imitation,
    learned,
    prepare,
    report,
)
from gpu.catalogue import Part
from gpu.checks import CUT, FAILED, NOT_HERE, PASSED, Check, NotHereError, Setting
from hf_recurrent.data.batches import PaddingCollator
from hf_recurrent.deploy.cuda_graphs import ARCHITECTURES as GRAPHED
from hf_recurrent.models.ops.graphs import capturing
from hf_recurrent.utils import read_json
from perf.core import Table
from support.compare import assert_same, compute, gradients
from support.families import BY_NAME, LANGUAGE_VARIANTS, make_batch, make_model, slow

ROOT = Path(__file__).parents[1]


def setting_in(folder: Path, seconds: float = 60.0, part: str = "models") -> Setting:
    return Setting(part, "cpu", True, time.time() + seconds, str(folder), str(folder))


def broken() -> None:
    raise ValueError("this much is wrong")


def impossible() -> None:
    raise NotHereError("needs two of them")


CHECKS = [
    Check("good", lambda: [Table("Numbers", [{"number": 1}])]),
    Check("bad", broken),
    Check("impossible", impossible),
    Check("last", lambda: None),
]


def test_a_failing_check_stops_no_other(tmp_path):
    setting = setting_in(tmp_path)
    assert checks.run(CHECKS, setting) == 0
    found = checks.read_results(setting.results)
    assert found["finished"]
    outcomes = {name: row["outcome"] for name, row in found["checks"].items()}
    assert outcomes == {"good": PASSED, "bad": FAILED, "impossible": NOT_HERE, "last": PASSED}
    assert "in broken" in found["checks"]["bad"]["traceback"]


def test_the_report_has_failures_with_tracebacks_and_tables_with_numbers(tmp_path):
    checks.run(CHECKS, setting_in(tmp_path))
    failed = report.write_report(tmp_path, {"rehearsal": True, "device": "cpu"}, {"late": "3 s were left"})
    assert failed == 1
    text = (tmp_path / "report.md").read_text()
    for piece in (
        "no GPU has run",
        "ValueError: this much is wrong",
        "in broken",
        "### Numbers",
        "left out: late: 3 s",
    ):
        assert piece in text
    # what could not be executed has a list of its own
    assert "models, impossible: needs two of them" in text.partition("## Not executed here")[2]
    assert report.read_report(tmp_path)["parts"]["models"]["checks"]["good"]["outcome"] == PASSED


def test_finished_checks_are_not_made_again(tmp_path):
    setting, made = setting_in(tmp_path), []
    both = [Check(name, lambda name=name: made.append(name)) for name in "ab"]
    checks.run(both[:1], setting)
    checks.run(both, setting)
    assert made == ["a", "b"]


def late() -> None:
    raise checks.OutOfTimeError("3 s are left")


def test_a_check_without_time_is_made_by_a_later_run(tmp_path):
    setting = setting_in(tmp_path)
    assert checks.run([Check("a", lambda: None), Check("b", late), Check("c", late)], setting) == checks.OVER
    found = checks.read_results(setting.results)
    assert (list(found["checks"]), found["finished"], "running" in found) == (["a"], False, False)


@pytest.mark.slow
def test_a_slice_of_a_recipe_that_counts_epochs_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(learned, "TOY", {**learned.TOY, "max_steps": -1, "num_train_epochs": 1})
    setting, name = setting_in(tmp_path), "compositional_table_lookup_ndr"
    (first,), (second,) = (learned.one_slice(setting, name, most_steps=1)[0].rows for _ in range(2))
    examples = prepare.load_splits(tmp_path / "toy-data", name)["train"]
    # the last batch is dropped where it is not whole
    batches = len(examples) // learned.TOY["per_device_train_batch_size"]
    assert (first["step"], first["of"], second["step"], second["of"]) == (1, batches, 2, batches)


def test_a_rate_warms_up_and_falls_to_zero_when_the_time_is_over(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(further.time, "time", lambda: now[0])
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=2.0)
    trainer = argparse.Namespace(args=TrainingArguments(warmup_steps=2), optimizer=optimizer, until=110.0)
    scheduler, rates = further.FallingRate.create_scheduler(trainer, 10**7), []
    for moment in (100.0, 100.0, 105.0, 110.0, 120.0):
        now[0] = moment
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    rates.append(optimizer.param_groups[0]["lr"])
    assert rates == pytest.approx([1.0, 2.0, 2.0, 1.0, 0.0, 0.0])


@pytest.mark.slow
def test_a_checkpoint_learns_until_a_time(tmp_path):
    name, start = "cpu/ctl_ndr_forward", ROOT / "model_cards" / "ndr-ctl-forward"
    list(prepare.prepare((name,), tmp_path / "data", 0.01))
    flags = f"--model_name_or_path {start} --per_device_train_batch_size 4 --learning_rate 1e-6 --use_cpu true"
    words = [*flags.split(), "--config", "{exit_criterion: learned}", "--output_dir", str(tmp_path / "run")]
    row = further.further(name, 5.0, words, tmp_path / "data")
    assert read_json(tmp_path / "run" / "slice.json") == row
    # on a busy machine loading takes all of the time
    assert row["of"] == row["step"] > 0
    weights, before = (load_file(folder / "model.safetensors") for folder in (tmp_path / "run" / "learned", start))
    assert_same(weights, before, 1e-2)


@pytest.fixture
def dying(monkeypatch):
    """A part whose processes die in its second check, then hang in its third."""
    code = (
        "import os, sys, time, json\nfrom gpu.checks import Check, Setting, run\n"
        "setting = Setting(*json.loads(sys.argv[-1]).values())\n"
        "sys.exit(run([Check('a', lambda: None), Check('b', lambda: os._exit(7)), Check('c', lambda: None),"
        " Check('d', lambda: time.sleep(600))], setting))"
    )
    popen = subprocess.Popen
    monkeypatch.setattr(
        day.subprocess, "Popen", lambda command, **options: popen([sys.executable, "-c", code, command[-1]], **options)
    )
    monkeypatch.setattr(day, "GRACE", 0.5)


@pytest.mark.parametrize("variant", [each for each in LANGUAGE_VARIANTS if each.core and each.architecture in GRAPHED])
def test_half_precision_is_near_where_no_unit_is_switched(variant):
    """The bound of the check on a GPU; otherwise a unit of the head of UT, near zero, moves a gradient by a third."""
    case = correct.Case(variant, True)
    model = case.make(variant).train()
    correct.halt_nothing(model, variant)
    correct.switch_nothing(model)

    def learned(way):
        with way, torch.autocast("cpu", torch.bfloat16):
            return gradients(model, case.batch)

    eager, masked = learned(contextlib.nullcontext()), learned(capturing())
    assert correct.largest_error(masked, eager) <= graphs.HALF_TOLERANCE


@pytest.mark.nightly
def test_a_process_that_dies_or_hangs_costs_one_check(tmp_path, dying):
    part = catalogue.BY_NAME["models"]
    setting = setting_in(tmp_path, seconds=45.0)
    day.run_part(part, setting)
    found = checks.read_results(setting.results)
    outcomes = {name: row["outcome"] for name, row in found["checks"].items()}
    assert outcomes == {"a": PASSED, "b": FAILED, "c": PASSED, "d": CUT}
    assert found["checks"]["b"]["reason"] == "its process ended with status 7"
    assert "no time was left" in found["checks"]["d"]["reason"]
    # what was cut is made again when there is time
    day.forget_cut(setting)
    assert "d" not in checks.read_results(setting.results)["checks"]


def test_a_terminated_day_leaves_no_process(tmp_path, monkeypatch):
    started, popen = [], subprocess.Popen

    def sleep(command, **options) -> subprocess.Popen:
        started.append(popen(["sleep", "60"], **options))
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM)).start()
        return started[0]

    monkeypatch.setattr(day.subprocess, "Popen", sleep)
    part, setting = catalogue.BY_NAME["models"], setting_in(tmp_path, seconds=5.0)
    monkeypatch.setattr(day, "run_parts", lambda _: day.run_process(part, setting, tmp_path / "log"))
    # without a handler of its own, the day would take this process along
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with pytest.raises(SystemExit) as end:
            day.main(["--rehearse", "--output", str(tmp_path)])
    finally:
        signal.signal(signal.SIGTERM, before)
    assert end.value.code == 143
    assert started[0].returncode == -signal.SIGKILL


def test_parts_fit_into_a_day():
    assert sum(part.seconds for part in catalogue.PARTS) + day.RESERVE + day.GRACE <= 25 * 60
    assert all(part.least <= part.seconds for part in catalogue.PARTS)


def test_parts_that_do_not_fit_give_way_to_those_that_do(tmp_path, monkeypatch):
    ran = []

    def record(part, setting):
        ran.append((part.name, round(setting.seconds_left)))
        checks.write_results(setting.results, {"finished": True, "checks": {}})

    parts = [Part("correct", name, 30, least, "", name) for name, least in (("long", 100), ("short", 20), ("last", 5))]
    monkeypatch.setattr(day, "PARTS", parts)
    monkeypatch.setattr(day, "run_part", record)
    monkeypatch.setattr(day, "write_report", lambda *_: 0)
    monkeypatch.setattr(day, "facts_of", lambda _: {})
    args = argparse.Namespace(minutes=1.5, output=tmp_path, data="", only=None, skip=[], again=False, rehearse=False)
    left_out = day.run_parts(args)
    assert list(left_out) == ["long"]
    assert "needs 100 s" in left_out["long"]
    # its estimate, and the last one whatever is left when it has been waited for
    assert ran == [("short", 30), ("last", 65)]
    assert day.run_parts(args) == left_out
    assert len(ran) == 2


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_no_gpu_is_one_line():
    with pytest.raises(device.NoDeviceError, match=r"^no GPU: torch .* sees none; `python -m gpu.day --rehearse`"):
        device.require()


def test_an_imitated_device_refuses_mixtures():
    with imitation.installed():
        states, weights = torch.ones(2, 3).to("cuda"), torch.ones(3, 2)
        assert states.device == torch.device("cuda", 0)
        assert (states @ weights.to("cuda")).is_cuda
        with pytest.raises(
            RuntimeError, match=r"matmul: Expected all tensors to be on the same device.*cuda:0 and cpu"
        ):
            states @ weights
        with pytest.raises(TypeError, match="can't convert cuda:0"):
            states.numpy()
        assert states.cpu().device.type == "cpu"
        tied = torch.nn.Linear(3, 3)
        tied.other = tied.weight
        tied.to("cuda")
        assert tied.weight.is_cuda
        assert tied.weight is tied.other
    assert torch.ones(1).device.type == "cpu"


@pytest.mark.parametrize("name", ["gut", slow("ut"), slow("sut")])
def test_models_stay_on_an_imitated_device(name):
    variant = BY_NAME[name]
    batch = make_batch(variant)
    expected, expected_gradients = (
        function(make_model(variant), *rest)
        for function, rest in (
            (compute, (variant, batch)),
            (gradients, (batch,)),
        )
    )
    with imitation.installed():
        model = make_model(variant).to("cuda")
        there = {key: value.to("cuda") for key, value in batch.items()}
        found, found_gradients = compute(model, variant, there), gradients(model, there)
        assert all(value.is_cuda for value in found.values())
        found, found_gradients = (
            {key: value.cpu() for key, value in each.items()} for each in (found, found_gradients)
        )
    assert_same(found, expected)
    assert_same(found_gradients, expected_gradients)


def test_prepared_files_give_the_examples_back(tmp_path):
    (line,) = prepare.prepare(("compositional_table_lookup_ndr",), tmp_path, 0.01)
    assert "train" in line
    splits = prepare.load_splits(tmp_path, "compositional_table_lookup_ndr")
    benchmark, config, params = prepare.source_of("compositional_table_lookup_ndr")
    member = prepare.get_benchmark(benchmark, config)
    shard = member.plan(config, member.resolve(config, params))["train"][0]
    tokenizer = prepare.build_tokenizer(benchmark, config)
    example = next(iter(shard.examples()))
    (column,) = prepare.benchmark_info(benchmark, config).text_columns
    assert splits["train"][0]["input_ids"] == tokenizer(example[column])["input_ids"]
    batch = PaddingCollator(tokenizer)([splits["train"][place] for place in range(3)])
    assert batch["input_ids"].shape[0] == 3
    assert batch["labels"].dtype == torch.long
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 0.01 * prepare.MEBIBYTE
    with pytest.raises(FileNotFoundError, match=r"run `python -m gpu.prepare` first"):
        prepare.load_splits(tmp_path, "flip_flop_tlb")


@pytest.fixture
def environment(tmp_path):
    """Of processes where `datasets` and `evaluate` are not installed."""
    blocked = tmp_path / "blocked"
    blocked.mkdir()
    (blocked / "sitecustomize.py").write_text('import sys\nsys.modules["datasets"] = sys.modules["evaluate"] = None\n')
    return {**os.environ, "PYTHONPATH": os.pathsep.join((str(blocked), str(ROOT / "src")))}


@pytest.mark.slow
def test_prepared_files_are_learned_from_without_datasets(environment):
    tasks = "hf_recurrent.tasks.text_classification, hf_recurrent.tasks.text_generation"
    command = [sys.executable, "-c", f"import gpu.further, gpu.learned, {tasks}"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_the_whole_rehearsal(tmp_path, environment):
    """Every part is whole and green, where `datasets` and `evaluate` are not installed."""
    output = tmp_path / "output"
    command = [sys.executable, "-m", "gpu.day", "--rehearse", "--output", str(output)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=1800, check=False)
    assert done.returncode == 0, done.stdout[-4000:]
    found = report.read_report(output)
    assert found["facts"]["datasets"] is None
    assert found["parts"].keys() == catalogue.BY_NAME.keys()
    assert all(part["finished"] for part in found["parts"].values())
    assert "## Not executed here" in (output / "report.md").read_text()
