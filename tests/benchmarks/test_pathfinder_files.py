"""The authors' Pathfinder folders: both forms of their lists, the two ways to divide them, and what can be wrong."""

import shutil

import numpy as np
import pytest
from PIL import Image

from hf_recurrent.benchmarks.lra.pathfinder import benchmark as files
from hf_recurrent.benchmarks.pixels import parse_pixels

CONFIG, HARD = "pathfinder32", "curv_contour_length_14"
PARAMS = {"difficulty": HARD, "split_rule": "dynamic_halt"}
# batches, in the order that lists are read in, which is not that of their names
BATCHES, IN_BATCH = ("2", "10"), 12


def line(batch, number, label):
    return ["imgs/" + batch, f"sample_{number}.png", str(number), str(label), "1.0", "14", "4", "2", "0.5", "1", "1"]


def write(root, form="text", size=32):
    """A folder of one difficulty: pixel (0, 0) of each picture is its place in the lists."""
    (root / "metadata").mkdir(parents=True)
    for place, batch in enumerate(BATCHES):
        (root / "imgs" / batch).mkdir(parents=True)
        lines = []
        for number in range(IN_BATCH):
            picture = np.zeros((size, size), dtype=np.uint8)
            picture[0, 0] = place * IN_BATCH + number
            Image.fromarray(picture).save(root / "imgs" / batch / f"sample_{number}.png")
            lines.append(line(batch, number, number % 2))
        path = root / "metadata" / f"{batch}.npy"
        if form == "text":
            path.write_text("".join(" ".join(fields) + "\n" for fields in lines))
        else:
            np.save(path, np.array(lines).astype("S" if form == "bytes" else "U"))
    return root


@pytest.fixture
def hard(tmp_path):
    return write(tmp_path / "lra_release" / "lra_release" / CONFIG / HARD)


def rows(data_dir, config=CONFIG, **changes):
    planned = files.Pathfinder(config).plan_files(config, {**PARAMS, **changes}, data_dir)
    return {split: [row for shard in shards for row in shard.examples()] for split, shards in planned.items()}


def places(rows):
    return [int(row["pixels"].split(" ", 1)[0]) for row in rows]


@pytest.mark.parametrize("form", ["text", "strings", "bytes"])
def test_both_forms_of_lists_are_read(form, tmp_path):
    found = rows(write(tmp_path / HARD, form))
    assert {split: len(each) for split, each in found.items()} == {"train": 18, "validation": 3, "test": 3}
    for row in (row for each in found.values() for row in each):
        picture = parse_pixels(row["pixels"])
        assert picture.shape == (32, 32)
        assert row["label"] == picture[0, 0] % IN_BATCH % 2
        assert (row["contour_length"], row["distractor_length"]) == (14, 4)
        assert row["num_distractors"] == row["num_placed"] == row["marker_distance"] == -1
    assert sorted(place for each in found.values() for place in places(each)) == list(range(24))


def test_splits_follow_the_rule_of_either_code(hard):
    for rule, divide in files.SPLIT_RULES.items():
        expected = divide(24)
        assert {split: places(each) for split, each in rows(hard, split_rule=rule).items()} == expected


def test_the_rules_divide_the_release_as_published_code_does():
    """Numbers that the authors' own code gives for 200,000 images."""
    first = files.SPLIT_RULES["dynamic_halt"](200_000)
    assert first["test"][:4] == [91492, 142074, 104896, 136119]
    assert first["validation"][:2] == [30449, 50546]
    assert first["train"][:2] == [177983, 91322]
    second = files.SPLIT_RULES["s4"](200_000)
    assert second["train"][:3] == [37542, 143173, 127710]
    assert second["validation"][:2] == [122036, 135593]
    assert second["test"][:2] == [143170, 45464]
    assert [len(part) for part in (*first.values(), *second.values())] == [160_000, 20_000, 20_000] * 2
    # they round differently where the number is no multiple of 10
    assert [len(part) for part in files.SPLIT_RULES["dynamic_halt"](15).values()] == [11, 2, 2]
    assert [len(part) for part in files.SPLIT_RULES["s4"](15).values()] == [13, 1, 1]


def test_any_part_of_the_release_can_be_given(hard, tmp_path):
    expected = rows(hard)
    for part in (tmp_path, tmp_path / "lra_release", tmp_path / "lra_release" / "lra_release", hard.parent):
        assert rows(part) == expected


def test_the_empty_image_of_the_release_is_left_out(tmp_path):
    folder = write(tmp_path / CONFIG / "curv_baseline")
    with open(folder / "metadata" / "2.npy", "a") as file:
        file.write(" ".join(line("0", 172, 1)) + "\n")
    (folder / "imgs" / "0").mkdir()
    (folder / "imgs" / "0" / "sample_172.png").touch()
    found = rows(tmp_path, difficulty="curv_baseline")
    assert sum(map(len, found.values())) == 24
    # but in no other set
    (folder.parent / HARD).mkdir()
    shutil.copytree(folder, folder.parent / HARD, dirs_exist_ok=True)
    with pytest.raises(ValueError, match=r"1 of 25 images are empty: imgs/0/sample_172\.png"):
        rows(tmp_path)


def test_all_missing_images_are_told(hard):
    for number in range(1, 12):
        (hard / "imgs" / "10" / f"sample_{number}.png").unlink()
    (hard / "imgs" / "2" / "sample_3.png").write_bytes(b"")
    with pytest.raises(ValueError, match="11 of 24 images are missing") as caught:
        rows(hard)
    message = str(caught.value)
    assert all(f"imgs/10/sample_{number}.png" in message for number in range(1, 11))
    assert "sample_11" not in message
    assert "1 of 24 images are empty: imgs/2/sample_3.png" in message
    shutil.rmtree(hard / "imgs" / "2")
    with pytest.raises(ValueError, match=r"23 of 24 images are missing: imgs/2/sample_0\.png"):
        rows(hard)


def test_an_image_of_another_size_is_told(tmp_path):
    folder = write(tmp_path / HARD, size=64)
    with pytest.raises(ValueError, match=r"sample_\d+\.png: the image has 64 x 64 pixels .*; expected 32 x 32"):
        rows(folder)
    assert len(rows(folder, config="pathfinder64")["test"][0]["pixels"].split()) == 64 * 64


@pytest.mark.parametrize("kind", ["colour", "truncated", "text"])
def test_an_image_that_is_none_is_told(kind, hard):
    for path in (hard / "imgs" / "10").iterdir():
        if kind == "colour":
            Image.new("RGB", (32, 32)).save(path)
        else:
            path.write_bytes(path.read_bytes()[:50] if kind == "truncated" else b"no image")
    message = "kind 'RGB'; expected 32 x 32 pixels of kind 'L'" if kind == "colour" else "no PNG image that can be read"
    with pytest.raises(ValueError, match=rf"imgs/10/sample_\d+\.png: .*{message}"):
        rows(hard)


def test_folders_that_are_not_there(hard, tmp_path):
    with pytest.raises(ValueError, match="has no imgs, metadata"):
        rows(hard.parent, difficulty="curv_baseline")
    with pytest.raises(ValueError, match=r"difficulty='curv_baseline': .* has the images of 'curv_contour_length_14'"):
        rows(hard, difficulty="curv_baseline")
    for path in (hard / "metadata").iterdir():
        path.rename(path.with_name(f"all_{path.name}"))
    with pytest.raises(ValueError, match=r"there is no <number>\.npy"):
        rows(hard)


BAD_LINES = [
    ("imgs/2 sample_0.png 0 1", r"2\.npy:2: expected folder, file, number, label"),
    ("imgs/2 sample_0.png 0 x 1.0 14 4", r"2\.npy:2: expected folder"),
    ("imgs/2 sample_0.png 0 2 1.0 14 4", r"2\.npy:2: the label is 2; expected 0 or 1"),
    ("imgs/2 sample_0.png 0 1 1.0 inf 4", r"2\.npy:2: expected folder"),
]


@pytest.mark.parametrize(("text", "message"), BAD_LINES)
def test_lines_that_cannot_be_read(text, message, hard):
    path = hard / "metadata" / "2.npy"
    path.write_text(path.read_text().split("\n")[0] + "\n" + text + "\n")
    with pytest.raises(ValueError, match=message):
        rows(hard)


def test_arrays_that_are_not_read(hard):
    path = hard / "metadata" / "2.npy"
    np.save(path, np.array([line("2", 0, 1)], dtype=object), allow_pickle=True)
    with pytest.raises(
        ValueError, match=r"2\.npy: expected lines of text or a table of strings without Python objects"
    ):
        rows(hard)
    np.save(path, np.zeros((3, 11)))
    with pytest.raises(ValueError, match="an array of float64"):
        rows(hard)
    content = path.read_bytes()
    path.write_bytes(content[:80])
    with pytest.raises(ValueError, match=r"2\.npy: expected lines of text"):
        rows(hard)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=r"2\.npy: expected lines of text"):
        rows(hard)
