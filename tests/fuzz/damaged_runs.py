"""Training runs that were killed, and whose folder was damaged before the same command goes on there.

A run ends as one that nothing befell, because what is damaged is skipped, written anew or not needed, or it names the
file and leaves the folder as it is.

cd tests; python -m fuzz.damaged_runs --seconds 600 --seed 0
"""

import functools
import json
import math
import random
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from fuzz.campaigns import Findings, main
from fuzz.killing.faults import Fault
from fuzz.killing.finished_folder import contents, differences
from fuzz.refusing.answers import ERROR, Answer, judged
from fuzz.refusing.verdict import VERDICTS, Case
from fuzz.training_kills import Bench
from hf_recurrent.training.run_folder import checkpoints, read_run

SCRIPTS = ("run_glue_style", "run_clm_accelerate", "run_seq2seq")
SAME = "same"
# folders of killed runs that a campaign damages, each again and again
BEGUN = 2
HUGE = 10**30

Keys = tuple[str | int, ...]


def cut(content: bytes, rng: random.Random) -> bytes:
    return content[: rng.randrange(1, max(len(content), 2))]


# kind of damage -> what a file holds then
CONTENTS: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "empty": lambda content, rng: b"",
    "cut short": cut,
    "binary": lambda content, rng: rng.randbytes(256),
    "a list": lambda content, rng: b"[]",
    "a number": lambda content, rng: b"3",
    "no fields": lambda content, rng: b"{}",
    "nested": lambda content, rng: b"[" * 300,
}


def wrong_fields(value: Any) -> dict[str, Any]:
    """Kinds of damage to a field of a JSON file -> what it holds then."""
    kinds: dict[str, Any] = {"of another type": 3 if isinstance(value, (str, list, dict, bool)) else [[]]}
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        kinds["NaN"] = math.nan
    if isinstance(value, int) and not isinstance(value, bool):
        kinds |= {"negative": -7, "huge": HUGE}
    return kinds


def fields(value: Any, keys: Keys = ()) -> Iterator[Keys]:
    """The places of all fields in a JSON value; of a list, those of its last item."""
    if keys:
        yield keys
    items = value.items() if isinstance(value, dict) else list(enumerate(value))[-1:] if isinstance(value, list) else ()
    for key, item in items:
        yield from fields(item, (*keys, key))


def damage_field(file: Path, rng: random.Random) -> str:
    """Remove a random field of a JSON file, or give it a value that it cannot have -> the damage in words."""
    data = json.loads(file.read_bytes())
    *before, last = rng.choice(list(fields(data)))
    holder = functools.reduce(lambda value, key: value[key], before, data)
    kinds = wrong_fields(holder[last])
    kind = rng.choice(["removed", *kinds])
    if kind == "removed":
        del holder[last]
    else:
        holder[last] = kinds[kind]
    file.write_text(json.dumps(data))
    return f"{'.'.join(map(str, (*before, last)))} {kind}"


def damage(file: Path, rng: random.Random) -> str:
    """Damage a file at random -> the damage in words."""
    content = file.read_bytes()
    # as likely as all others: there are many fields
    if file.suffix == ".json" and content[:1] == b"{" and rng.random() < 0.5:
        return damage_field(file, rng)
    kind = rng.choice([*CONTENTS, "absent", "a folder", "a link to nowhere"])
    file.unlink()
    if kind == "a folder":
        file.mkdir()
    elif kind == "a link to nowhere":
        file.symlink_to(file.parent / "absent" / "absent")
    elif kind != "absent":
        file.write_bytes(CONTENTS[kind](content, rng))
    return kind


def snapshot(folder: Path) -> dict[str, bytes | str]:
    """What is at each path of a folder: a file's bytes, or where a link leads."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_symlink():
            found[str(path)] = str(path.readlink())
        else:
            found[str(path)] = "a folder" if path.is_dir() else path.read_bytes()
    return found


class Damager:
    """Damages folders of killed runs of one script, and lets the same command go on there."""

    def __init__(self, bench: Bench, seed: int):
        self.bench, self.target = bench, bench.target("damaged")
        self.begun = [self.killed(random.Random(f"{seed} {number}"), number) for number in range(BEGUN)]

    def killed(self, rng: random.Random, number: int) -> Path:
        """A copy of the folder of a run that was killed between its first checkpoint and its results."""
        while True:
            shutil.rmtree(self.target, ignore_errors=True)
            place = rng.randrange(1, self.bench.changes + 1)
            self.bench.fork(self.target, Fault("kill", place)).end()
            if checkpoints(self.target) and not read_run(self.target)["evaluated"]:
                return Path(shutil.copytree(self.target, self.bench.folder / f"begun-{number}"))

    def case(self, rng: random.Random) -> Case:
        """A random damage to a random folder; its verdict is `SAME` if the run ends as an undisturbed one."""
        shutil.rmtree(self.target, ignore_errors=True)
        # at the place of the killed run, as states of trainers name it
        shutil.copytree(rng.choice(self.begun), self.target)
        file = rng.choice([path for path in sorted(self.target.rglob("*")) if path.is_file()])
        kind = damage(file, rng)
        before = snapshot(self.target)
        code, printed = self.bench.fork(self.target).end()
        subject = f"{self.bench.script} ({file.relative_to(self.target)}: {kind})"
        if code == 0:
            problems = self.problems()
            verdict = "silent" if problems else SAME
            return Case(subject, file.name, str(file), verdict, "; ".join(problems))
        after = snapshot(self.target)
        # what it has computed until then is progress; the kill left hidden files, its lock and halves, to be removed
        left = [path for path in before if before[path] != after.get(path) and "/." not in path]
        # warnings come before it
        said = printed[max(printed.rfind(f"\n{ERROR}"), 0) :].strip() if "Traceback" not in printed else printed
        if code < 0:
            return Case(subject, file.name, str(file), "traceback", f"ended by signal {-code}: {printed}")
        return judged(subject, file.name, str(file), Answer(code, said, left), [str(file.parent), str(self.target)])

    def problems(self) -> list[str]:
        """Differences from the folder of an undisturbed run."""
        try:
            return differences(contents(self.target), self.bench.expected)
        except (ValueError, OSError, KeyError, SafetensorError) as error:
            return [str(error)]


def campaign(
    *, seconds: float = math.inf, count: float = math.inf, seed: int = 0, scripts: Sequence[str] = SCRIPTS
) -> Findings:
    """Verdicts on runs that go on in damaged folders."""
    found, order = Findings((SAME, *VERDICTS)), random.Random(seed).sample(scripts, len(scripts))
    with tempfile.TemporaryDirectory(prefix="damaged_runs_") as place:

        @functools.cache
        def damager(script: str) -> Damager:
            return Damager(Bench(script, Path(place) / script), seed)

        for number in found.trials(seconds, count):
            case = damager(order[number % len(order)]).case(random.Random(f"{seed} {number}"))
            found.counts[case.subject.partition(" (")[0]][case.verdict] += 1
            if case.verdict not in (SAME, "clear"):
                found.faults.append(f"seed {seed}, trial {number}, {case}")
    return found


if __name__ == "__main__":
    sys.exit(main(campaign, __doc__))
