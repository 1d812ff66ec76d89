"""A hook of mkdocs: the pages of the reference, from docstrings, commands, configs and outputs."""

import importlib
import inspect
from collections.abc import Iterator
from types import ModuleType

import griffe
import typer
from mkdocs.structure.files import File, Files
from transformers.utils import ModelOutput
from typer.cli import get_docs_for_click

import hf_recurrent
from hf_recurrent import ARCHITECTURES
from hf_recurrent.cli.app import NAME, app
from hf_recurrent.cli.train import ALL_FLAGS, FLAGS, USAGE
from hf_recurrent.models.base import outputs
from hf_recurrent.models.config.fields import declarations, descriptions, finite, type_text

# packages and modules with a page, and what it is about
PACKAGES = {
    "benchmarks": "Benchmarks",
    "data.segments": "Long documents",
    "tasks.base": "Tasks",
    "deploy": "Deployment",
    "convert": "Checkpoints of others",
    "hub": "Cards and publishing",
    "metrics": "Metrics",
    "analysis.explain": "Explanations",
    "analysis.pipelines": "Pipelines",
    "training.arguments": "Training arguments",
}
DOCUMENTED = {griffe.DocstringSectionKind.parameters, griffe.DocstringSectionKind.attributes}


def on_files(files: Files, config) -> Files:
    for name, text in pages():
        files.append(File.generated(config, f"reference/{name}", content=text))
    return files


def pages() -> Iterator[tuple[str, str]]:
    """Name and Markdown of each page."""
    modules = [(f"{name}.md", package_page(name, title)) for name, title in PACKAGES.items()]
    models = [(f"models/{name}.md", model_page(name)) for name in ARCHITECTURES]
    yield "index.md", index()
    yield "command_line.md", command_line()
    yield "configs.md", configs()
    yield "outputs.md", output_fields()
    yield "package.md", package()
    yield from modules
    yield from models
    order = ["index.md", "command_line.md", "configs.md", "outputs.md", "package.md", *(name for name, _ in modules)]
    entries = "\n".join(f"  - {name}" for name in order)
    yield ".nav.yml", f"title: Reference\nnav:\n{entries}\n  - Models: models\n"


def index() -> str:
    models = ", ".join(f"[{entry.prefix}](models/{name}.md)" for name, entry in ARCHITECTURES.items())
    packages = "\n".join(f"- [{title}]({name}.md): `hf_recurrent.{name}`" for name, title in PACKAGES.items())
    return f"""# Reference

Made from the code of version {hf_recurrent.__version__} when this documentation was built.

- [Command line](command_line.md): every command, argument and option.
- [Config fields](configs.md): of each architecture, with defaults.
- [Output fields](outputs.md): what a forward pass returns.
- [The package](package.md): what `import hf_recurrent` offers beside the models.
- Models: {models}.
{packages}
"""


def command_line() -> str:
    """The commands as typer documents them, and the flags of `train`, which reads its own."""
    command = typer.main.get_command(app)
    text = get_docs_for_click(obj=command, ctx=typer.Context(command), name=NAME, title="Command line")
    groups = [
        f"**{title.capitalize()}**:\n\n" + "\n".join(f"* `--{flag}`: {help}" for flag, help in flags.items())
        for title, flags in FLAGS.items()
    ]
    before, heading, after = text.partition(f"## `{NAME} train`\n")
    after = after[after.index("\n## ") :]
    flags = "\n\n".join([f"```text\n{USAGE}```", *groups, f"```text\n{ALL_FLAGS}\n```"])
    return f"{before}{heading}\n{flags}\n{after}"


def package() -> str:
    names = ["load_benchmark", "from_pretrained_recurrent", "save_checkpoint", "evaluate"]
    places = [f"hf_recurrent.{name}" for name in names] + ["hf_recurrent.registry.Architecture"]
    intro = "`hf_recurrent.ARCHITECTURES` is a dictionary of `Architecture` by `model_type`."
    return f"# The package\n\n{intro}\n\n" + blocks(places)


def model_page(model_type: str) -> str:
    architecture = ARCHITECTURES[model_type]
    config = f"{architecture.prefix}Config"
    fields = f"[Fields of the config](../configs.md#{config.lower()})"
    title = f"# {architecture.prefix}\n\nPaper: {architecture.paper}. {fields}.\n\n"
    names = sorted(architecture.class_names, key=lambda name: (not name.endswith("Config"), not name.endswith("Model")))
    calls = "    options:\n      inherited_members: [forward]\n"
    return title + "\n".join(f"::: hf_recurrent.{name}\n{calls}" for name in names)


def package_page(name: str, title: str) -> str:
    package = importlib.import_module(f"hf_recurrent.{name}")
    text = inspect.cleandoc(package.__doc__)
    return f"# {title}\n\n`hf_recurrent.{name}`\n\n{text.splitlines()[0]}\n\n" + blocks(places_of(package))


def places_of(module: ModuleType) -> list[str]:
    """Where the public functions and classes of a module are defined; without `__all__`, those of its own."""
    if names := getattr(module, "__all__", None):
        return [defined_at(getattr(module, name)) or f"{module.__name__}.{name}" for name in names]
    places = [defined_at(value) for name, value in vars(module).items() if not name.startswith("_")]
    return [place for place in places if place and place.startswith(f"{module.__name__}.")]


def defined_at(value: object) -> str | None:
    """Path of a function or class; None of others."""
    is_defined = inspect.isclass(value) or inspect.isfunction(value)
    return f"{value.__module__}.{value.__qualname__}" if is_defined else None


def blocks(places) -> str:
    return "\n".join(f"::: {place}\n" for place in places)


def configs() -> str:
    """A table of the fields of each architecture's config."""
    tables = []
    for architecture in ARCHITECTURES.values():
        config_class = architecture.config_class
        explained = descriptions(config_class)
        rows = [
            f"| `{name}` | {type_text(kind)}{'' if allowed is finite else f', {allowed.text}'} | `{default}` "
            f"| {cell(explained[name])} |"
            for name, (kind, allowed, default) in declarations(config_class).items()
        ]
        head = f"## {config_class.__name__}\n\n`model_type`: `{architecture.model_type}`\n\n"
        tables.append(f"{head}| field | values | default | meaning |\n|---|---|---|---|\n" + "\n".join(rows))
    intro = "Where the default is `None`, the meaning says what is filled in when a config is made."
    return f"# Config fields\n\n{intro}\n\n" + "\n\n".join(tables) + "\n"


def output_fields() -> str:
    """A table of the fields of each class of outputs."""
    tables = []
    for name, output in vars(outputs).items():
        if inspect.isclass(output) and issubclass(output, ModelOutput) and output.__module__ == outputs.__name__:
            rows = [f"| `{field}` | {cell(meaning)} |" for field, meaning in documented(output).items()]
            summary = inspect.cleandoc(output.__doc__).strip().splitlines()[0]
            tables.append(f"## {name}\n\n{summary}\n\n| field | meaning |\n|---|---|\n" + "\n".join(rows))
    return f"# Output fields\n\n{inspect.cleandoc(outputs.__doc__)}\n\n" + "\n\n".join(tables) + "\n"


def documented(documented_class: type) -> dict[str, str]:
    """Name -> meaning of the fields that a class and its bases of this package document, the bases' first."""
    found = {}
    for cls in reversed(documented_class.__mro__):
        if cls.__module__.startswith("hf_recurrent.") and cls.__doc__:
            docstring = griffe.Docstring(inspect.cleandoc(cls.__doc__))
            for section in docstring.parse("google", warnings=False):
                for item in section.value if section.kind in DOCUMENTED else ():
                    found |= dict.fromkeys(item.name.split(", "), item.description)
    return found


def cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
