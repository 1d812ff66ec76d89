"""The arena's Image: CIFAR-10 in binary batches and in tables of pictures, and how colours become grey."""

from io import BytesIO

import numpy as np
import pytest
from lra_files import planned_rows, write_files, write_tables
from PIL import Image

from hf_recurrent.benchmarks.lra import image as photographs
from hf_recurrent.benchmarks.pixels import parse_pixels

PARAMS = {"grayscale": "lra"}
rng = np.random.default_rng(0)
# colours (images, rows, columns, channels), four images a batch
COLOURS = rng.integers(0, 256, (24, 32, 32, 3), dtype=np.uint8)
LABELS = [int(label) for label in rng.integers(0, 10, 24)]
NAMES = [*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"]


def record(place):
    """As the authors have it: the label, all red values row by row, all green ones, all blue ones."""
    image = COLOURS[place]
    return bytes([LABELS[place]]) + b"".join(image[:, :, channel].tobytes() for channel in range(3))


BATCHES = {name: b"".join(map(record, range(4 * number, 4 * number + 4))) for number, name in enumerate(NAMES)}


def png(image):
    content = BytesIO()
    image.save(content, "PNG")
    return content.getvalue()


def picture(place):
    return {"img": {"bytes": png(Image.fromarray(COLOURS[place])), "path": None}, "label": LABELS[place]}


def read(data_dir, **params):
    return planned_rows(photographs.Photographs(), PARAMS | params, data_dir)


def check(splits):
    """The colours in their order, the last tenth of 20 for validation."""
    assert {split: len(rows) for split, rows in splits.items()} == {"train": 18, "validation": 2, "test": 4}
    rows = [row for rows in splits.values() for row in rows]
    assert [row["label"] for row in rows] == LABELS
    for row, colours in zip(rows, COLOURS, strict=True):
        pixels = parse_pixels(row["pixels"])
        assert np.array_equal(pixels, luminance(colours))
        assert abs(row["brightness"] - pixels.mean()) <= 0.5
        assert abs(row["contrast"] - pixels.std()) <= 0.5


def luminance(colours):
    """What the authors' words say."""
    red, green, blue = (colours[..., channel] / 255 for channel in range(3))
    return np.floor((0.2989 * red + 0.5870 * green + 0.1140 * blue) * 255.5)


@pytest.mark.parametrize("folder", ["", "cifar-10-batches-bin"])
def test_binary_batches(folder, tmp_path):
    write_files(tmp_path / folder, BATCHES)
    check(read(tmp_path))


def test_tables(tmp_path):
    images = [picture(place) for place in range(24)]
    write_tables(tmp_path, train=[images[:19], images[19:20]], test=[images[20:]])
    check(read(tmp_path))


def test_grey_values():
    colours = np.random.default_rng(1).integers(0, 256, (800, 800, 3), dtype=np.uint8)
    corners = np.array([[[0, 0, 0], [255, 255, 255], [255, 0, 0], [0, 255, 0], [0, 0, 255]]], dtype=np.uint8)
    for image in (colours, corners):
        assert np.array_equal(photographs.grey(image, "lra"), luminance(image))
        assert np.array_equal(photographs.grey(image, "pil"), np.asarray(Image.fromarray(image).convert("L")))
    assert photographs.grey(corners, "lra").tolist() == [[0, 255, 76, 149, 29]]
    difference = photographs.grey(colours, "pil").astype(int) - photographs.grey(colours, "lra")
    assert set(np.unique(difference)) == {0, 1}
    # known of two million colours; five standard deviations
    assert difference.mean() == pytest.approx(0.262, abs=0.003)


@pytest.mark.parametrize("name", ["data_batch_3.bin", "test_batch.bin"])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (record(0)[:-1], "has 3072 bytes, which are not whole images of 3073 bytes: is it whole"),
        (record(0) + b"\0", "has 3074 bytes, which are not whole images"),
        (b"", "has 0 bytes, which are not whole images"),
        (record(0) + b"\x0a" + record(1)[1:], "image 2: expected a label from 0 to 9, got 10"),
    ],
)
def test_damaged_batches(name, content, message, tmp_path):
    write_files(tmp_path, BATCHES | {name: content})
    with pytest.raises(ValueError, match=rf"{name},? {message}"):
        read(tmp_path)


def test_missing_batches(tmp_path):
    write_files(tmp_path / "cifar-10-batches-bin", {name: BATCHES[name] for name in NAMES[1:5]})
    with pytest.raises(ValueError, match=r"cifar-10-batches-bin has no data_batch_1\.bin, test_batch\.bin;"):
        read(tmp_path)


@pytest.mark.parametrize("name", ["cifar-10-batches-py/data_batch_1", "data_batch_1"])
def test_the_version_for_python(name, tmp_path):
    write_files(tmp_path, {name: b"\x80\x02."})
    with pytest.raises(
        ValueError, match=r"is the version for Python, .*give the binary version \(cifar-10-batches-bin\)"
    ):
        read(tmp_path)
    # beside the binary version it does not matter
    write_files(tmp_path / "cifar-10-batches-bin", BATCHES)
    check(read(tmp_path))


WHOLE = picture(0)["img"]["bytes"]


@pytest.mark.parametrize(
    ("image", "label", "message"),
    [
        (png(Image.new("RGB", (32, 33))), 1, "the image has 32 x 33 pixels of kind 'RGB'; expected 32 x 32 pixels"),
        (png(Image.new("L", (32, 32))), 1, "the image has 32 x 32 pixels of kind 'L'; expected .* of kind 'RGB'"),
        (WHOLE[: len(WHOLE) // 2], 1, "no PNG image that can be read"),
        (WHOLE[:20], 1, "no PNG image that can be read"),
        (b"GIF", 1, "no PNG image that can be read"),
        (None, 1, "expected the bytes of an image in 'img', got .*None"),
        (WHOLE, 10, "expected a label from 0 to 9, got 10"),
        (WHOLE, None, "expected a label from 0 to 9, got None"),
    ],
)
def test_bad_pictures(image, label, message, tmp_path):
    bad = {"img": {"bytes": image, "path": "0.png"}, "label": label}
    write_tables(tmp_path, train=[[picture(0)]], test=[[picture(1), bad]])
    with pytest.raises(ValueError, match=rf"test-00000-of-00001\.parquet, row 2: {message}"):
        read(tmp_path)
