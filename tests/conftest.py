"""Fixtures of every test, and the rules of the tiers (see docs/develop/testing.md)."""

import gc
import os
import sys

import pytest
import torch

import support.examples  # noqa: F401 - registers the profiles of `--hypothesis-profile`
from hf_recurrent import ARCHITECTURES
from hf_recurrent.models.depth import loop
from support.families import (
    BY_NAME,
    CACHED_VARIANTS,
    HALTING_VARIANTS,
    LANGUAGE_BY_NAME,
    LANGUAGE_VARIANTS,
    VARIANTS,
    make_batch,
    make_language_model,
    make_model,
    make_text,
    tiered,
)

# models this small only lose by threads
torch.set_num_threads(1)
# nor would units that have halted ever be gathered out
loop.PRODUCTS_PER_COMPACTION = loop.PRODUCTS_PER_MOVE = 0

# of one module
IMPORT_SECONDS = 0.005
setup_seconds, shared_seconds = pytest.StashKey[float](), pytest.StashKey[float]()


def processor_seconds() -> float:
    """Time on the processor of this process and of the children that it has waited for, but for imports.

    Whichever test comes first would pay for them.
    """
    times = os.times()
    seconds = times.user + times.system + times.children_user + times.children_system
    return seconds - IMPORT_SECONDS * len(sys.modules)


def pytest_addoption(parser):
    parser.addoption("--architecture", help="select contract, parity and twin tests of this architecture, e.g. gut")
    parser.addoption("--device", help="let models compute on cuda, or on an imitated GPU: see support/on_device.py")
    parser.addini("processor_seconds", "unmarked tests that take more are named at the end; 0 for none", default="3")


def pytest_configure(config):
    device = config.getoption("device")
    if device is not None:
        from support import on_device

        config.add_cleanup(on_device.install(device))
    # a million objects of modules and tests come and stay: looking for garbage among them takes a third of collecting
    gc.disable()


def pytest_collection_finish():
    gc.enable()
    gc.freeze()


def architectures_of(item) -> set[str]:
    """Architectures that a test names: by its parameters, or by the mark `architecture`."""
    named = {name for mark in item.iter_markers("architecture") for name in mark.args}
    for value in getattr(getattr(item, "callspec", None), "params", {}).values():
        if isinstance(value, str):
            variant = BY_NAME.get(value) or LANGUAGE_BY_NAME.get(value)
            value = variant.architecture if variant else value
        name = getattr(value, "architecture", value)
        named |= {name} if isinstance(name, str) else set()
    return named & ARCHITECTURES.keys()


def pytest_collection_modifyitems(config, items):
    chosen = config.getoption("architecture")
    if chosen is None:
        return
    selected = [item for item in items if chosen in architectures_of(item)]
    if items and not selected:
        raise pytest.UsageError(f"--architecture is {chosen!r}: no test names it")
    config.hook.pytest_deselected(items=[item for item in items if item not in selected])
    items[:] = selected


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef, request):
    """Adds up what fixtures take that several tests share; such a one may ask for others of its kind."""
    if fixturedef.scope == "function":
        return (yield)
    stash = request.config.stash
    before, start = stash.get(shared_seconds, 0.0), processor_seconds()
    try:
        return (yield)
    finally:
        stash[shared_seconds] = before + processor_seconds() - start


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item):
    shared, start = item.config.stash.get(shared_seconds, 0.0), processor_seconds()
    try:
        return (yield)
    finally:
        shared = item.config.stash.get(shared_seconds, 0.0) - shared
        item.stash[setup_seconds] = processor_seconds() - start - shared


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    start = processor_seconds()
    try:
        return (yield)
    finally:
        seconds = item.stash[setup_seconds] + processor_seconds() - start
        limit = float(item.config.getini("processor_seconds"))
        if seconds > limit > 0 and not any(item.get_closest_marker(name) for name in ("slow", "nightly")):
            item.user_properties.append(("processor_seconds", seconds))


def pytest_terminal_summary(terminalreporter):
    """Names the tests without a mark that are slow, so that `make test` stays quick.

    A test does not fail by its time, which depends on the machine and on its other work.
    """
    reports = [report for found in terminalreporter.stats.values() for report in found]
    slow = {
        (value, report.nodeid)
        for report in reports
        for name, value in getattr(report, "user_properties", ())
        if name == "processor_seconds"
    }
    if slow:
        terminalreporter.section("more processor time than an unmarked test may take: mark them slow")
    for seconds, name in sorted(slow, reverse=True):
        terminalreporter.line(f"{seconds:.1f} s {name}")


@pytest.fixture(autouse=True)
def _seed():
    # torch.manual_seed also keeps a traceback of each call, for a GPU that may be there one day
    torch.default_generator.manual_seed(0)


@pytest.fixture(params=tiered(VARIANTS))
def variant(request):
    """Core variants in the quick tier, the others in the slow one."""
    return request.param


@pytest.fixture(params=tiered(HALTING_VARIANTS))
def halting_variant(request):
    return request.param


@pytest.fixture
def model(variant):
    return make_model(variant)


@pytest.fixture
def batch(variant):
    return make_batch(variant)


@pytest.fixture(params=tiered(LANGUAGE_VARIANTS))
def language_variant(request):
    return request.param


@pytest.fixture
def language_model(language_variant):
    return make_language_model(language_variant)


@pytest.fixture
def text(language_variant):
    return make_text(language_variant)


@pytest.fixture(params=tiered(CACHED_VARIANTS))
def cached_variant(request):
    return request.param
