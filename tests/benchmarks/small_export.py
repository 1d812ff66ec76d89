"""Configs and parameters of the export that tests share, and functions that read an export."""

import yaml

CONFIGS = ("original", "argument_generalization")
# more rows than fit into one row group, and parameters of every kind; 9 levels are the default of one config only
PARAMS = {"num_train": 1500, "num_validation": 20, "num_test": 40, "operators": ("MAX", "[SM"), "max_depth": 9}
SMALL = {"num_train": 30, "num_validation": 5, "num_test": 8}


def contents(folder):
    """Every file below `folder`, by relative path."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def front_matter(folder):
    return yaml.safe_load((folder / "README.md").read_text().split("---\n")[1])


def body(folder):
    return (folder / "README.md").read_text().split("---\n", 2)[2]
