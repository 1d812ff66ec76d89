"""The rules of the source that neither ruff nor import-linter can express."""

import ast
import dataclasses
import functools
import re
import subprocess
import sys
from pathlib import Path

import pytest
from transformers.configuration_utils import PreTrainedConfig

import hf_recurrent
from doc_parts.public_names import STUB, stub
from hf_recurrent import ARCHITECTURES

SOURCE = Path(hf_recurrent.__file__).parent
SOURCE_FILES = sorted(SOURCE.rglob("*.py"))
MODEL_FILES = sorted((SOURCE / "models").rglob("*.py"))
# a remote loader asks for every package a file imports, so a checkpoint may need no others
EXPORTABLE = {"hf_recurrent", "torch", "transformers", "huggingface_hub"}
MAX_LINES, MAX_FUNCTION_LINES, MAX_PARAMETERS = 900, 80, 8
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@functools.cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), filename=str(path))


@functools.cache
def all_nodes(path: Path) -> list[ast.AST]:
    return list(ast.walk(parse(path)))


@functools.cache
def nodes(path: Path, *kinds: type) -> list:
    return [node for node in all_nodes(path) if isinstance(node, kinds)]


@pytest.fixture(scope="module", autouse=True)
def _parsed():
    """Shared by all tests, the first of which would pay for it."""
    for path in SOURCE_FILES:
        all_nodes(path)


def place(path: Path, node: ast.AST) -> str:
    return f"{path.relative_to(SOURCE)}:{node.lineno}"


def modeling_file(model_type: str) -> Path:
    return SOURCE / "models" / model_type / f"modeling_{model_type}.py"


def packages(node: ast.Import | ast.ImportFrom) -> set[str]:
    names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
    return set() if getattr(node, "level", 0) else {name.partition(".")[0] for name in names}


def test_models_import_only_what_every_checkpoint_can():
    """A package that may be missing is imported in a `try`, which the remote loader does not look into."""
    for path in MODEL_FILES:
        attempts = {node for attempt in nodes(path, ast.Try) for node in attempt.body}
        for node in nodes(path, ast.Import, ast.ImportFrom):
            if node not in attempts:
                assert packages(node) <= EXPORTABLE | sys.stdlib_module_names, place(path, node)


def test_no_prose_looks_like_a_relative_import():
    """The remote loader finds imports by this expression, in docstrings and comments too."""
    for path in MODEL_FILES:
        found = set(re.findall(r"^\s*from\s+(\.+[\w.]*)\s+import", path.read_text(), flags=re.MULTILINE))
        imports = [node for node in nodes(path, ast.ImportFrom) if node.level]
        assert found == {"." * node.level + (node.module or "") for node in imports}, path


def test_sizes():
    """Of files, functions, and constructors, whose parameters a config should hold."""
    for path in SOURCE_FILES:
        assert len(path.read_text().splitlines()) <= MAX_LINES, path
        for function in nodes(path, *FUNCTIONS):
            # arguments and their documentation may be as many as transformers' conventions ask for
            body = function.body[1:] if ast.get_docstring(function) and len(function.body) > 1 else function.body
            assert function.end_lineno - body[0].lineno < MAX_FUNCTION_LINES, place(path, function)
            if function.name == "__init__" and path in MODEL_FILES:
                names = [argument.arg for argument in (*function.args.args, *function.args.kwonlyargs)]
                assert len(set(names) - {"self", "config"}) <= MAX_PARAMETERS, place(path, function)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_modeling_files_are_built_alike(architecture):
    """PreTrainedModel, then base models, then heads, all of them exported, and annotations are classes."""
    path = modeling_file(architecture)
    prefix = ARCHITECTURES[architecture].prefix
    # transformers reads `config: GUTConfig` as a class, which postponed annotations turn into a string
    assert "__future__" not in [node.module for node in nodes(path, ast.ImportFrom)]
    classes = [node.name for node in parse(path).body if isinstance(node, ast.ClassDef)]
    models = [name.removeprefix(prefix) for name in classes]
    models = [name for name in models if name.startswith("For") or name.endswith("Model")]
    assert models[:2] == ["PreTrainedModel", "Model"]
    heads = [name.startswith("For") for name in models[2:]]
    assert heads == sorted(heads)
    (exported,) = [
        ast.literal_eval(node.value)
        for node in parse(path).body
        if isinstance(node, ast.Assign) and node.targets[0].id == "__all__"
    ]
    assert set(exported) <= set(classes)
    assert set(ARCHITECTURES[architecture].class_names) - set(exported) == {f"{prefix}Config"}


@functools.cache
def attributes_read() -> set[str]:
    reads = [node for path in SOURCE_FILES for node in nodes(path, ast.Attribute) if isinstance(node.ctx, ast.Load)]
    return {node.attr for node in reads}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_config_field_is_read(architecture):
    config_class = ARCHITECTURES[architecture].config_class
    ours = [cls for cls in config_class.__mro__ if cls.__module__.startswith("hf_recurrent.")]
    fields = {name for cls in ours for name in vars(cls).get("__annotations__", {})}
    assert fields <= {field.name for field in dataclasses.fields(config_class)}
    # transformers itself initialises embeddings and ties weights
    unread = fields - attributes_read() - PreTrainedConfig.__dataclass_fields__.keys()
    assert unread <= {"initializer_range", "tie_word_embeddings"}


def run_python(code: str) -> str:
    command = [sys.executable, "-W", "error::ImportWarning", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
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


def test_type_checkers_see_the_public_names():
    assert STUB.read_text(encoding="utf-8") == stub(), "run `python -m doc_parts`"
    places = {alias.name: node.module for node in nodes(STUB, ast.ImportFrom) for alias in node.names}
    assert places.keys() | {"__version__"} == {*hf_recurrent.__all__}
    for name in places.keys() - {"ARCHITECTURES"}:
        assert getattr(hf_recurrent, name).__module__.startswith(f"hf_recurrent.{places[name]}"), name
    assert (SOURCE / "py.typed").exists()


USE = "config = AutoConfig.for_model('gut', hidden_size=8, num_attention_heads=2); AutoModel.from_config(config)"
NO_FIGURES = (
    "import hf_recurrent.analysis.explain.card, hf_recurrent.analysis.losses, hf_recurrent.hub\n"
    "assert 'matplotlib' not in sys.modules\n"
    "import hf_recurrent.analysis.plots; assert 'matplotlib.pyplot' not in sys.modules"
)
NO_TRITON = (
    "sys.modules['triton'] = None\n"
    "from hf_recurrent.models.ndr.kernels import kernel_available\n"
    "assert not kernel_available('cpu') and not kernel_available('cuda')"
)
# transformers' layers import its Auto classes, whose import registers architectures that need those layers
IMPORT_ORDERS = [
    f"from transformers import AutoConfig, AutoModel; import hf_recurrent; {USE}",
    f"from hf_recurrent.convert import load_authors; from transformers import AutoConfig, AutoModel; {USE}",
    # what draws is loaded by what draws alone
    f"from hf_recurrent.models.gut.modeling_gut import GUTModel; from hf_recurrent import GUTConfig\n{NO_FIGURES}",
    # a checkpoint must load where there is no Triton
    NO_TRITON,
]


@pytest.mark.nightly
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
