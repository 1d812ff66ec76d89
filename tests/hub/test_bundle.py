"""The bundler on small packages, and the files that it makes of this one: what is in them, in which order."""

import ast
import builtins
import importlib
import re
import subprocess
import sys
import textwrap

import pytest
from transformers import AutoConfig

from hf_recurrent import ARCHITECTURES
from hf_recurrent.hub.bundle import (
    GENERATES,
    SOURCE,
    bundle,
    carried_heads,
    code_files,
    files_without,
    read_module,
)

ENTRIES = {"XConfig": "pkg.models.x.configuration_x", "XModel": "pkg.models.x.modeling_x"}
CONFIGURATION = """
    from ..config.base import Config

    class XConfig(Config):
        pass

    __all__ = ["XConfig"]
"""
MODEL = """
    \"\"\"A model.\"\"\"

    {imports}
    from .configuration_x import XConfig

    class XModel:
        config = XConfig

        def __call__(self):
            return {result}

        def unused(self):
            return 0

    __all__ = ["XModel"]
"""
CASES = [(name, head) for name, family in ARCHITECTURES.items() for head in family.heads]


def code_of(model_type: str, auto_class: str) -> dict[str, str]:
    """The code of a model with a default config."""
    config = AutoConfig.for_model(model_type, is_encoder_decoder=auto_class == "AutoModelForSeq2SeqLM")
    return code_files(model_type, auto_class, config.to_dict())


# lines of modeling_<architecture>.py: of a GUT that reads a text at once, of others, and of those that write text
MOST_LINES = {"gut": 4600, "read": 5600, "write": 6200}


@pytest.fixture
def make(tmp_path, monkeypatch):
    """Bundle a package whose model returns an expression -> the files, and what that gives when they run.

    Modules are those of `pkg.models`, `__` in a name being a slash.
    """

    def make(result="None", imports="", left_out=(), **modules):
        model = textwrap.dedent(MODEL).format(imports=imports, result=result)
        config = "class Config:\n    size = 3\n\n    def unused(self):\n        pass\n"
        modules = {"x__modeling_x": model, "x__configuration_x": CONFIGURATION, "config__base": config, **modules}
        for name, text in modules.items():
            path = tmp_path / "pkg" / "models" / f"{name.replace('__', '/')}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(text).strip() + "\n")
        monkeypatch.syspath_prepend(tmp_path)
        for name in [name for name in sys.modules if name.split(".")[0] in ("flat", "pkg")]:
            monkeypatch.delitem(sys.modules, name)
        files = bundle(ENTRIES, left_out, tmp_path, "pkg 1.2.3")
        (tmp_path / "flat").mkdir()
        for name, text in files.items():
            (tmp_path / "flat" / name).write_text(text)
        found = importlib.import_module("flat.modeling_x").XModel()()
        assert found == importlib.import_module("pkg.models.x.modeling_x").XModel()()
        return files, found

    return make


def test_what_is_used_is_copied_in_reading_order(make):
    files, found = make(
        "area(2)",
        "from ..depth.shapes import area",
        depth__shapes="""
            \"\"\"Sizes of shapes.

            R radius.
            \"\"\"

            import math
            from math import ceil, floor, pi

            from ..ops.squares import square

            # the constant
            PI = round(pi, 2)  # rounded

            # goes with the function
            def unused():
                return ceil(2)


            def area(radius):
                \"\"\"Of a circle.\"\"\"
                # squared
                return PI * square(radius) + floor(math.e)

            __all__ = ["area", "unused"]
        """,
        ops__squares="from math import pi\n\n\ndef square(value):\n    return value**2\n\n\nlast = pi\n",
    )
    assert found == 3.14 * 4 + 2
    assert files["modeling_x.py"] == textwrap.dedent(
        '''\
        """A model.

        Code of XModel from pkg 1.2.3, and all that it uses, for inference and training.
        Saving the model writes this file again. Read it before you pass `trust_remote_code=True`.

        Contents (line, module, subject):
            17 models/ops/squares.py:
            23 models/depth/shapes.py: Sizes of shapes.
            38 models/x/modeling_x.py: A model.
        """

        import math
        from math import floor, pi
        from .configuration_x import XConfig


        # ---------- models/ops/squares.py

        def square(value):
            return value**2


        # ---------- models/depth/shapes.py
        # Sizes of shapes.
        #
        # R radius.

        # the constant
        PI = round(pi, 2)  # rounded


        def area(radius):
            """Of a circle."""
            # squared
            return PI * square(radius) + floor(math.e)


        # ---------- models/x/modeling_x.py
        # A model.

        class XModel:
            config = XConfig

            def __call__(self):
                return area(2)


        __all__ = ['XModel']
        '''
    )
    assert "unused" not in files["configuration_x.py"]


METHODS = """
    from collections.abc import Mapping

    def helper():
        return {"b": 2}

    def other():
        return {}

    class Base:
        size = 1

        def cache(self):
            return {}

    class Words(Mapping, Base):
        kind = "words"

        def __len__(self): return 1
        def __iter__(self): return iter(["a"])
        def __getitem__(self, key): return len(key)
        def keys(self): return ["b"]
        def first(self): return other()
        @property
        def second(self): return helper()["b"]
        def third(self): return self.size
        def cache(self): return helper()
"""


def test_methods_stay_that_may_be_called(make):
    files, found = make(
        '[getattr(Words(), "third")(), Words().second, Words().keys()]',
        "from ..ops.words import Words",
        ops__words=METHODS,
    )
    assert found == [1, 2, ["b"]]
    text = files["modeling_x.py"]
    # an installed base class calls `keys`, and nobody `first`
    assert "def keys" in text
    assert not re.search(r"def (first|other|cache)\b", text)


def test_methods_that_replace_another_can_be_left_out(make):
    files, found = make(
        "[Base().cache(), Words().second]",
        "from ..ops.words import Base, Words",
        left_out=("cache",),
        ops__words=METHODS,
    )
    assert found == [{}, 2]
    assert files["modeling_x.py"].count("def cache") == 1


def test_what_config_and_model_share_stands_with_the_config(make):
    files, found = make(
        "check(XConfig.size)",
        "from ..config.base import check",
        config__base="def check(size):\n    return size + 1\n\nclass Config:\n    size = check(2)\n",
    )
    assert found == 4
    assert "def check" in files["configuration_x.py"]
    assert "from .configuration_x import XConfig, check" in files["modeling_x.py"]
    assert "def check" not in files["modeling_x.py"]


KERNELS = """
    # annotations stay text
    from __future__ import annotations

    from ..ops.shared import least

    try:
        import triton
        import triton.language as tl
    except ImportError:
        triton = tl = None

    def one(value: tl.constexpr):
        return least(value)
"""


def test_an_import_that_holds_for_a_whole_file_begins_one(make):
    files, found = make(
        "[one(1), least(3)]",
        "from ..ops.shared import least\nfrom .kernels import one",
        x__kernels=KERNELS,
        ops__shared="def least(value):\n    return min(value, 2)\n",
    )
    assert found == [1, 2]
    assert list(files) == ["configuration_x.py", "kernels_x.py", "modeling_x.py"]
    assert "def least" in files["kernels_x.py"]
    assert "from .kernels_x import least, one" in files["modeling_x.py"]
    assert "__future__" not in files["modeling_x.py"]


def bound(node):
    """Name -> meaning of what a top-level statement binds."""
    if isinstance(node, ast.Try):
        return {name: meaning for inner in node.body for name, meaning in bound(inner).items()}
    if isinstance(node, ast.Import | ast.ImportFrom):
        origin = getattr(node, "module", None)
        names = {alias.asname or alias.name.partition(".")[0]: alias.name for alias in node.names}
        return {
            name: (origin, whole if origin else name) for name, whole in names.items() if not getattr(node, "level", 0)
        }
    targets = getattr(node, "targets", [getattr(node, "target", None)])
    inner = (each for target in targets if target for each in ast.walk(target) if isinstance(each, ast.Name))
    names = {each.id for each in inner if isinstance(each.ctx, ast.Store)}
    return dict.fromkeys({getattr(node, "name", None), *names} - {None, "__all__"}, ast.unparse(node))


@pytest.mark.parametrize("model_type", ARCHITECTURES)
def test_modules_of_an_architecture_follow_the_rules(model_type):
    """A name means one thing, each statement binds one, and the package is imported at the top."""
    known, names = dict.fromkeys(dir(builtins)), [*set(ARCHITECTURES[model_type].class_names.values())]
    for name in names:
        module = read_module(name, SOURCE)
        names += [origin for origin in module.imported if origin not in names]
        assert not re.search(r"^ +from \.|^from \. |^from \..* as ", "\n".join(module.lines), re.MULTILINE), name
        assert all(part.binds for part in module.parts), name
        for node in ast.parse("\n".join(module.lines)).body:
            for each, meaning in bound(node).items():
                assert known.setdefault(each, meaning) == meaning, (name, each)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The code of every architecture with every head, of a default config and with all parts, each in a folder."""
    place = tmp_path_factory.mktemp("code")
    for case in CASES:
        for folder, files in (("default", code_of(*case)), ("whole", files_without(*case, ()))):
            (place / folder / "-".join(case)).mkdir(parents=True)
            for name, text in files.items():
                (place / folder / "-".join(case) / name).write_text(text)
    return place


def test_no_name_is_undefined_and_no_import_unused(written):
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--no-cache", "--select", "E9,F401,F811,F821"]
    done = subprocess.run([*command, written], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("model_type", "auto_class"), CASES)
def test_files_have_their_classes_and_are_of_a_size_to_read(model_type, auto_class):
    files, family = code_of(model_type, auto_class), ARCHITECTURES[model_type]
    kernels = {"kernels_ndr.py"} if model_type == "ndr" else set()
    assert files.keys() == {f"configuration_{model_type}.py", f"modeling_{model_type}.py"} | kernels
    text = files[f"modeling_{model_type}.py"]
    models = {f"{other.prefix}{suffix}" for other in ARCHITECTURES.values() for suffix in other.heads.values()}
    classes = set(re.findall(r"^class (\w+)", text, re.MULTILINE)) & models
    assert classes == {family.prefix + family.heads[head] for head in carried_heads(model_type, auto_class)}
    writes = auto_class in GENERATES
    assert text.count("\n") <= MOST_LINES["write" if writes else "gut" if model_type == "gut" else "read"]
    assert ("GenerationMixin" in text) == writes
    for line, module in re.findall(r"^ {,5}(\d+) (models/[\w/]+.py):", text, re.MULTILINE):
        assert text.splitlines()[int(line) - 1] == f"# ---------- {module}"


def test_which_heads_a_checkpoint_carries():
    assert carried_heads("gut", "AutoModelForCausalLM") == ["AutoModel", "AutoModelForCausalLM"]
    readers = [head for head in ARCHITECTURES["sut"].heads if head not in GENERATES]
    assert carried_heads("sut", "AutoModel") == carried_heads("sut", "AutoModelForMaskedLM") == readers
    assert len(readers) == 6
