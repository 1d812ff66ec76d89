"""The rules that keep `models/` exportable and readable, checked on the source."""

import ast
import dataclasses
import re
import subprocess
import sys
from pathlib import Path

import pytest

import hf_recurrent
from hf_recurrent import ARCHITECTURES

SOURCE = Path(hf_recurrent.__file__).parent
MODEL_FILES = sorted((SOURCE / "models").glob("*.py"))
SOURCE_FILES = sorted(SOURCE.rglob("*.py"))
MODELING_FILES = [path for path in MODEL_FILES if path.name.startswith("modeling_")]
# a remote loader asks for every package a file imports, so a checkpoint may need no others
EXPORTABLE = {"torch", "transformers", "huggingface_hub"}
MOST_LINES, MOST_FUNCTION_LINES, MOST_PARAMETERS = 600, 60, 8
model_files = pytest.mark.parametrize("path", MODEL_FILES, ids=lambda path: path.name)
modeling_files = pytest.mark.parametrize("path", MODELING_FILES, ids=lambda path: path.name)


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), filename=str(path))


def imports(path: Path) -> list[ast.Import | ast.ImportFrom]:
    return [node for node in ast.walk(parse(path)) if isinstance(node, (ast.Import, ast.ImportFrom))]


def functions(path: Path) -> list[ast.FunctionDef]:
    return [node for node in ast.walk(parse(path)) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]


def test_there_is_something_to_check():
    assert {path.stem for path in MODELING_FILES} == {f"modeling_{family}" for family in ARCHITECTURES}
    assert len(SOURCE_FILES) > len(MODEL_FILES) > 10
    assert all(path.parent == SOURCE / "models" for path in (SOURCE / "models").rglob("*.py"))


def optional_packages(path: Path) -> set[str]:
    """Those that may be missing: a remote loader does not ask for what is imported in a `try`."""
    attempts = [node for node in ast.walk(parse(path)) if isinstance(node, ast.Try)]
    tried = [node for attempt in attempts for node in attempt.body if isinstance(node, ast.Import)]
    return {alias.name.partition(".")[0] for node in tried for alias in node.names}


@model_files
def test_models_import_only_what_the_hub_can_copy(path):
    siblings = {other.stem for other in MODEL_FILES}
    for node in imports(path):
        if isinstance(node, ast.ImportFrom) and node.level:
            assert node.level == 1, ast.unparse(node)
            assert node.module in siblings, f"{ast.unparse(node)}: only `from .sibling import name` is copied"
            continue
        names = [node.module] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
        for name in names:
            package = name.partition(".")[0]
            known = EXPORTABLE | sys.stdlib_module_names | optional_packages(path)
            assert package in known, ast.unparse(node)


@model_files
def test_modeling_files_are_imported_by_no_model_file(path):
    modules = [node.module or "" for node in imports(path) if isinstance(node, ast.ImportFrom)]
    assert not [module for module in modules if module.startswith("modeling_")]


@modeling_files
def test_annotations_are_classes(path):
    """transformers reads `config: GUTConfig` as a class, which postponed annotations turn into a string."""
    assert "__future__" not in [node.module for node in imports(path) if isinstance(node, ast.ImportFrom)]


@model_files
def test_no_prose_looks_like_a_relative_import(path):
    """The Hub's exporter finds imports by this expression, in docstrings and comments too."""
    found = set(re.findall(r"^\s*from\s+\.(\S+)\s+import", path.read_text(), flags=re.MULTILINE))
    real = {node.module for node in imports(path) if isinstance(node, ast.ImportFrom) and node.level == 1}
    assert found == real


@pytest.mark.parametrize("path", SOURCE_FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_sizes(path):
    assert len(path.read_text().splitlines()) <= MOST_LINES
    for function in functions(path):
        assert function.end_lineno - function.lineno < MOST_FUNCTION_LINES, function.name


@model_files
def test_constructors_are_small(path):
    for function in functions(path):
        if function.name == "__init__":
            names = [argument.arg for argument in (*function.args.args, *function.args.kwonlyargs)]
            assert len([name for name in names if name not in ("self", "config")]) <= MOST_PARAMETERS


@modeling_files
def test_classes_come_in_order(path):
    """PreTrainedModel, then base models, then heads; all of them exported."""
    prefix = ARCHITECTURES[path.stem.removeprefix("modeling_")].prefix
    classes = [node.name.removeprefix(prefix) for node in parse(path).body if isinstance(node, ast.ClassDef)]
    assert classes[:2] == ["PreTrainedModel", "Model"]
    heads = [name.startswith("For") for name in classes[2:]]
    assert heads == sorted(heads)
    assert all(name.endswith("Model") for name, head in zip(classes[2:], heads, strict=True) if not head)
    (exported,) = [
        ast.literal_eval(node.value)
        for node in parse(path).body
        if isinstance(node, ast.Assign) and node.targets[0].id == "__all__"
    ]
    assert sorted(exported) == sorted(prefix + name for name in classes)


@pytest.mark.parametrize("family", ARCHITECTURES)
def test_every_config_field_is_read_and_documented(family):
    config_class = ARCHITECTURES[family].config_class
    ours = [cls for cls in config_class.__mro__ if cls.__module__.startswith("hf_recurrent.")]
    fields = {name for cls in ours for name in vars(cls).get("__annotations__", {})}
    assert fields <= {field.name for field in dataclasses.fields(config_class)}
    read = set()
    for path in SOURCE_FILES:
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                read.add(node.attr)
    # transformers itself initialises embeddings and ties weights
    assert fields - read <= {"initializer_range", "tie_word_embeddings"}
    documentation = " ".join(cls.__doc__ for cls in ours)
    assert [name for name in sorted(fields) if not re.search(rf"\b{name}\b", documentation)] == []


@pytest.mark.parametrize("path", SOURCE_FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_nothing_dangerous(path):
    """Checkpoints are safetensors, choices are names, and libraries do not print."""
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            assert called not in ("eval", "exec", "print", "torch.load", "torch.save"), f"line {node.lineno}: {called}"
    names = {alias.name for node in imports(path) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in imports(path) if isinstance(node, ast.ImportFrom)}
    assert not names & {"pickle", "cloudpickle", "dill"}


def run_python(code: str) -> str:
    command = [sys.executable, "-W", "error::ImportWarning", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_import_is_light():
    """Everything heavy waits until it is asked for; counting modules says so without a clock."""
    output = run_python(
        "import sys, transformers; before = set(sys.modules)\n"
        "import hf_recurrent\n"
        "new = sorted(set(sys.modules) - before)\n"
        "print('torch' in sys.modules, len(new), *new)"
    )
    has_torch, number, *names = output.split()
    assert has_torch == "False"
    assert int(number) < 20
    assert all(name.startswith("hf_recurrent") or name in sys.stdlib_module_names for name in names)


def test_every_public_name_resolves():
    for name in hf_recurrent.__all__:
        assert getattr(hf_recurrent, name) is not None
    assert set(hf_recurrent.__all__) <= set(dir(hf_recurrent))
    with pytest.raises(AttributeError, match="no attribute 'GUTforEverything'"):
        hf_recurrent.GUTforEverything  # noqa: B018


USE = "config = AutoConfig.for_model('gut', hidden_size=8, num_attention_heads=2); AutoModel.from_config(config)"
NO_FIGURES = (
    "import hf_recurrent.analysis.explain.card, hf_recurrent.analysis.recurrence, hf_recurrent.hub\n"
    "assert 'matplotlib' not in sys.modules\n"
    "import hf_recurrent.analysis.plots; assert 'matplotlib.pyplot' not in sys.modules"
)
NO_TRITON = (
    "sys.modules['triton'] = None\n"
    "from hf_recurrent.models.ndr.kernels import kernel_available\n"
    "assert not kernel_available('cpu') and not kernel_available('cuda')"
)
# transformers' layers import its Auto classes, whose import registers families that need those layers
IMPORT_ORDERS = [
    f"from transformers import AutoConfig, AutoModel; import hf_recurrent; {USE}",
    f"from hf_recurrent.convert import load_reference; from transformers import AutoConfig, AutoModel; {USE}",
    # what draws is loaded by what draws alone
    f"from hf_recurrent.models.gut.modeling_gut import GUTModel; from hf_recurrent import GUTConfig\n{NO_FIGURES}",
    # a checkpoint must load where there is no Triton
    NO_TRITON,
]


def test_imports_work_in_any_order():
    """Each order in a process of its own, forked from one that has imported what takes long and knows no order."""
    run_python(
        "import os, sys, scipy.stats, torch._dynamo, torch.distributed.tensor\n"
        f"for code in {IMPORT_ORDERS!r}:\n"
        "    if (child := os.fork()) == 0:\n"
        "        exec(code, {'sys': sys})\n"
        "        os._exit(0)\n"
        "    if os.waitpid(child, 0)[1]:\n"
        "        sys.exit(f'failed: {code}')\n"
    )
