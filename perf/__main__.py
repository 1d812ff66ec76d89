"""`python -m perf SCRIPT [options]`: run a script and print its tables; `record` and `page` keep them."""

import ast
import importlib
import os
import sys
from pathlib import Path
from types import ModuleType

ALLOCATOR, KEPT = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"), str(2**30)
FOLDER = Path(__file__).parent
SHARED = ("authors", "core", "models", "work", "stored")


def summaries() -> dict[str, str]:
    """The scripts, with the first line of what they document."""
    paths = [path for path in sorted(FOLDER.glob("*.py")) if path.stem not in SHARED and "__" not in path.stem]
    documents = {path.stem: ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) for path in paths}
    return {name: document.partition("\n")[0] for name, document in documents.items()}


def keep_freed_memory() -> None:
    """Start again with an allocator that returns no memory to the system.

    Page faults of memory that is returned and taken again at once cost more than many a difference between two ways,
    by chance in one or in the other.
    """
    if any(os.environ.get(name) != KEPT for name in ALLOCATOR):
        os.execve(sys.executable, sys.orig_argv, {**os.environ, **dict.fromkeys(ALLOCATOR, KEPT)})


def run(name: str, script: ModuleType, arguments: list[str]) -> None:
    import torch

    from . import core, stored

    args = core.parse(name, arguments)
    torch.set_num_threads(args.threads)
    found = stored.Stored.of(name, arguments, args)
    print(stored.setting(found))
    for table in script.tables(args):
        found.tables.append(table)
        print("\n" + core.as_text(table), flush=True)
    if args.json:
        found.write(Path(args.json))
    if args.store:
        found.write(stored.path_of(name))


def main() -> None:
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    # torch's profiler, which counts memory, tells its start and stop
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    name, *arguments = sys.argv[1:] or ["--help"]
    scripts = summaries()
    if name in ("-h", "--help"):
        width = max(map(len, scripts))
        print(__doc__, *(f"    {script:{width}}  {line}" for script, line in scripts.items()), sep="\n")
    elif name in scripts:
        keep_freed_memory()
        script = importlib.import_module(f"perf.{name}")
        if hasattr(script, "main"):
            script.main(arguments)
        else:
            run(name, script, arguments)
    else:
        sys.exit(f"perf has no script {name!r}: choose one of {', '.join(scripts)}")


if __name__ == "__main__":
    main()
