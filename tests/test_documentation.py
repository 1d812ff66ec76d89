"""What `help` says of the public classes."""

import doctest
import inspect
import re

import pytest

import hf_recurrent
from hf_recurrent import ARCHITECTURES

# made in a second or more
LARGE = ("albert_recurrent", "ouro_recurrent", "huginn_recurrent")


@pytest.mark.parametrize(
    "architecture", [pytest.param(name, marks=pytest.mark.slow if name in LARGE else ()) for name in ARCHITECTURES]
)
def test_every_class_is_documented_and_examples_run(architecture):
    for name in ARCHITECTURES[architecture].class_names:
        kind = getattr(hf_recurrent, name)
        documentation = inspect.getdoc(kind)
        assert documentation, name
        assert documentation.splitlines()[0].endswith((".", ";", ")")), name
        if "For" not in name:
            continue
        assert f"{name}(" in documentation
        examples = doctest.DocTestFinder(recurse=False).find(kind, name, globs={})
        runner = doctest.DocTestRunner(verbose=False)
        for example in examples:
            printed = []
            assert runner.run(example, out=printed.append).failed == 0, "".join(printed)
            assert example.examples, name


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_forward_documents_its_arguments(architecture):
    for name in ARCHITECTURES[architecture].class_names:
        if name.endswith("Config"):
            continue
        forward = getattr(hf_recurrent, name).forward
        arguments, documentation = [*inspect.signature(forward).parameters], inspect.getdoc(forward)
        # of one or two stacks, it hands on what it is given
        for argument in arguments if "args" not in arguments else ():
            if argument != "self":
                assert re.search(rf"\b{argument}\b", documentation), (name, argument)
