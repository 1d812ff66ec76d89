"""A run of seconds, and where the scripts and the recipes are."""

from pathlib import Path

from hf_recurrent.recipes import FOLDER

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "training" / "run_glue_style.py"
CLM_SCRIPT = ROOT / "training" / "run_clm.py"
DOCUMENT_SCRIPT = ROOT / "training" / "run_clm_accelerate.py"
SEQ2SEQ_SCRIPT = ROOT / "training" / "run_seq2seq.py"
TOKEN_SCRIPT = ROOT / "training" / "run_token_classification.py"
MASKED_SCRIPT = ROOT / "training" / "run_mlm.py"
QA_SCRIPT = ROOT / "training" / "run_qa.py"
CHOICE_SCRIPT = ROOT / "training" / "run_multiple_choice.py"
# those of long documents, and of sources and targets, have arguments of their own
DOCUMENT_RECIPES = sorted(FOLDER.rglob("long_documents_*.yaml"))
SEQ2SEQ_RECIPES = sorted(
    path
    for benchmark in ("logical_inference_translation", "cfq", "wmt14_en_de")
    for path in FOLDER.rglob(f"{benchmark}_*.yaml")
)
# those that begin with a checkpoint
GLUE_RECIPES = sorted(FOLDER.glob("glue/*.yaml"))
RECIPES = sorted({*FOLDER.rglob("*.yaml")} - {*DOCUMENT_RECIPES, *SEQ2SEQ_RECIPES, *GLUE_RECIPES})
# a run of seconds, with dropout, halting that moves, evaluations and checkpoints on the way
TINY = {
    "model_type": "gut",
    "config": {
        **{"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 24, "num_hidden_layers": 3},
        "halting": "global",
    },
    "benchmark": "listops",
    "benchmark_params": {"num_train": 64, "num_validation": 16, "num_test": 24, "max_depth": 3},
    "learning_rate": 0.05,
    "lr_schedule": "rootwarmup",
    "warmup_steps": 4,
    "ponder_warmup_steps": 6,
    "per_device_train_batch_size": 8,
    "max_steps": 12,
    "eval_strategy": "steps",
    "eval_steps": 4,
    "save_strategy": "steps",
    "save_steps": 4,
    "logging_steps": 2,
    "load_best_model_at_end": True,
    "metric_for_best_model": "accuracy",
    "thresholds": [0.9],
    "threshold_samples": 8,
    "use_cpu": True,
    "disable_tqdm": True,
}
