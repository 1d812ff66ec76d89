"""Trainer's neighbours: streams, searches, trackers, evaluators."""

import evaluate
from datasets import Dataset, Features, IterableDataset, Value
from transformers import DataCollatorWithPadding, Trainer, TrainingArguments

from hf_recurrent import ARCHITECTURES
from hf_recurrent.metrics import accuracy
from hf_recurrent.training.arguments import RecurrentTrainingArguments
from hf_recurrent.training.trainer import RecurrentTrainer
from support.families import LABELS, STEPS
from support.tokenizer import make_tokenizer

from .door import Room
from .models import CLASSIFIER, batch_for, compute, fresh, live
from .training import arguments, rows_of, train

ROOM = Room("Beside Trainer")
TEXTS = ["w4 w9 w5", "w7", "w23 w11 w6 w8 w9 w4", "w5 w5", "w10 w12 w6", "w9 w9 w9 w4", "w8"]
EXAMPLES = [{"text": text, "label": number % LABELS} for number, text in enumerate(TEXTS)]


@ROOM.door("datasets, streamed", packages=["datasets"])
def enter_stream(architecture, folder):
    tokenizer = make_tokenizer()
    stream = IterableDataset.from_generator(lambda: iter(EXAMPLES)).shuffle(seed=1, buffer_size=4)
    stream = stream.map(lambda row: tokenizer(row["text"]), remove_columns=["text"])
    model, collator = live(architecture), DataCollatorWithPadding(tokenizer)
    train(Trainer(model, TrainingArguments(**arguments(folder)), collator, train_dataset=stream))


class Accuracy(evaluate.Metric):
    """What `evaluate.load("accuracy")` gets from the Hub."""

    def _info(self):
        features = Features(predictions=Value("int32"), references=Value("int32"))
        return evaluate.MetricInfo(description="", citation="", features=features)

    def _compute(self, predictions, references):
        return {"accuracy": accuracy(predictions, references)}


@ROOM.door("evaluate.evaluator", packages=["evaluate"])
def enter_evaluator(architecture, folder):
    """The scores of `TEXTS` by evaluate's loop are those of the model's answers one by one."""
    model, tokenizer, rows = live(architecture), make_tokenizer(), Dataset.from_list(EXAMPLES)
    options = {"metric": Accuracy(cache_dir=str(folder)), "device": -1, "label_mapping": model.config.label2id}
    found = evaluate.evaluator("text-classification").compute(model, rows, tokenizer=tokenizer, **options)
    answers = [int(compute(model, tokenizer(text, return_tensors="pt")).logits.argmax()) for text in TEXTS]
    expected = [row["label"] == answer for row, answer in zip(EXAMPLES, answers, strict=True)]
    assert found["accuracy"] == sum(expected) / len(expected)


@ROOM.door("hyperparameter_search with optuna", packages=["optuna"])
def enter_search(architecture, folder):
    rows = rows_of(batch_for(architecture))
    trainer = Trainer(
        args=TrainingArguments(**arguments(folder, eval_strategy="epoch")),
        model_init=lambda: fresh(architecture, CLASSIFIER),
        train_dataset=rows,
        eval_dataset=rows,
    )
    rates = [1e-5, 3e-2]
    best = trainer.hyperparameter_search(
        hp_space=lambda trial: {"learning_rate": trial.suggest_categorical("learning_rate", rates)},
        compute_objective=lambda metrics: metrics["eval_loss"],
        n_trials=3,
        backend="optuna",
        direction="minimize",
    )
    assert best.hyperparameters["learning_rate"] in rates
    assert 0 < best.objective < float("inf")


@ROOM.door("TensorBoard", packages=["tensorboard"])
def enter_tensorboard(architecture, folder):
    """Our trainer logs what transformers' own does, and steps and costs where a model halts."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    options = arguments(folder, report_to="tensorboard", eval_strategy="steps", eval_steps=3)
    model, rows = live(architecture), rows_of(batch_for(architecture))
    trainer = RecurrentTrainer(model, RecurrentTrainingArguments(**options), train_dataset=rows, eval_dataset=rows)
    train(trainer)
    (file,) = folder.rglob("events.out.*")
    events = EventAccumulator(str(file)).Reload()
    values = {tag: [event.value for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
    assert len(values["train/loss"]) == 3
    if ARCHITECTURES[architecture].config_class().capabilities.halts:
        for name in ("ponder_steps", "ponder_cost"):
            assert len(values[f"train/{name}"]) == 3
            assert 0 < max(values[f"train/{name}"]) <= STEPS
        masses = [values[f"eval/halting_mass/step_{step}"] for step in range(STEPS + 1)]
        assert abs(sum(mass for (mass,) in masses) - 1) < 1e-5
