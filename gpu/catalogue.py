"""The parts of the day, in order of worth."""

from typing import NamedTuple


class Part(NamedTuple):
    """A part.

    Attributes:
        kind: "correct", "fast" or "learned".
        name: of the part, and of its file of results.
        seconds: that it gets of a day of 25 minutes, by what its checks took on an H200 (docs/gpu.md), start of its
            process included; `least` is what it needs to be of any use.
        checks: module and function that yield its checks, given the setting.
        title: of its section in the report.
        interpreted: whether a rehearsal runs Triton's kernels in its interpreter.
        goes_on: whether checks that have an outcome are made again in a later run, to go further.
    """

    kind: str
    name: str
    seconds: int
    least: int
    checks: str
    title: str
    interpreted: bool = False
    goes_on: bool = False


PARTS = (
    Part("correct", "models", 165, 20, "gpu.correct:models", "Every architecture: GPU and CPU, and invariances"),
    Part("correct", "kernel", 150, 15, "gpu.kernels:geometric", "Fused geometric attention against eager", True),
    Part("correct", "late", 120, 15, "gpu.halting:checks", "Halting that is counted late, and streams"),
    Part("correct", "attention", 75, 15, "gpu.kernels:attention", "Implementations of attention and of experts"),
    Part("correct", "tests", 60, 60, "gpu.tests:checks", "The tests of the repository, with models on the GPU"),
    Part("correct", "graphs", 90, 20, "gpu.graphs:checks", "Passes as CUDA graphs"),
    Part("correct", "exits", 40, 15, "gpu.exits:checks", "Exit criteria: GPU and CPU"),
    Part("fast", "halting", 80, 20, "gpu.fast:halting", "Halted forward passes against the ideal"),
    Part("fast", "looped", 100, 40, "gpu.fast:looped", "A language model as large as Ouro-1.4B, decoding"),
    Part("fast", "slots", 85, 40, "gpu.slots:checks", "Pools of slots at different depths"),
    Part("fast", "steps", 90, 15, "gpu.fast:steps", "Launches, waits for the device and memory of a step"),
    Part("fast", "lengths", 20, 15, "gpu.fast:lengths", "Fused geometric attention from 128 to 8,192 tokens", True),
    Part("correct", "compiled", 120, 40, "gpu.kernels:compiled", "torch.compile"),
    Part("correct", "processes", 90, 20, "gpu.processes:checks", "Two processes"),
    Part("learned", "learned", 185, 60, "gpu.learned:checks", "Recipes of the papers' sizes, in slices", goes_on=True),
)
BY_NAME = {part.name: part for part in PARTS}
