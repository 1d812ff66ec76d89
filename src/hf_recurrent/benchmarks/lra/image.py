"""The Image task: CIFAR-10 in grey, from the authors' files or those of the Hub.

- The authors' binary version (cifar-10-batches-bin): `data_batch_1.bin` ... `data_batch_5.bin` and `test_batch.bin`, of
  records of 3,073 bytes: the label, then 32 x 32 values each of red, green and blue.
- The data set on the Hub: `plain_text/<split>-*.parquet` with the columns `img` (PNG) and `label`.

The last tenth of the train images are the validation split. In the release, the order is that of a shuffled copy.
"""

from collections.abc import Iterator, Mapping
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..benchmark import Plan
from ..files import parquet_length, read_picture, split_tables_folder
from ..sampling import Shard
from .common import BLACK_PIXELS, PIXELS, PIXELS_MEANING, PixelTask, find, image_example, task_info
from .hub_tables import FOLDER, Places, divide, table_rows, train_and_test

if TYPE_CHECKING:
    import numpy as np

SIDE, CHANNELS, CLASSES = 32, 3, 10
RECORD = 1 + CHANNELS * SIDE * SIDE
BATCHES = {"train": tuple(f"data_batch_{number}.bin" for number in range(1, 6)), "test": ("test_batch.bin",)}
FOLDERS = ("cifar-10-batches-bin",)
# names of the authors' version for Python, whose files are no plain data
_PYTHON_FOLDER, _PYTHON_FILE = "cifar-10-batches-py", "data_batch_1"
_COLUMNS = ("img", "label")


def _batches(data_dir: Path) -> dict[str, list[str]]:
    names = [name for batches in BATCHES.values() for name in batches]
    python = [data_dir / _PYTHON_FOLDER, data_dir / _PYTHON_FILE]
    if any(path.exists() for path in python) and not (data_dir / FOLDERS[0]).exists():
        raise ValueError(
            f"data_dir={str(data_dir)!r} is the version for Python, whose files can run code when they are read: give "
            f"the binary version ({FOLDERS[0]})"
        )
    folder = find(data_dir, FOLDERS, names)
    return {split: [str(folder / name) for name in batches] for split, batches in BATCHES.items()}


def _count_records(path: str) -> int:
    size = Path(path).stat().st_size
    if not size or size % RECORD:
        raise ValueError(f"{path} has {size} bytes, which are not whole images of {RECORD} bytes: is it whole?")
    return size // RECORD


def image_examples(path: str, places: Places, grayscale: str) -> Iterator[dict[str, object]]:
    """The examples of a table or binary batch.

    Raises:
        ValueError: a file is damaged, or holds anything but images of 32 x 32 pixels with one of ten labels.
    """
    colours = _records if path.endswith(".bin") else _pictures
    for place, label, image in colours(path, places):
        if type(label) is not int or label not in range(CLASSES):
            raise ValueError(f"{place}: expected a label from 0 to {CLASSES - 1}, got {label!r:.80}")
        yield image_example(grey(image, grayscale), label)


def grey(image: "np.ndarray", method: str) -> "np.ndarray":
    """The grey values (side, side) uint8 of colours (side, side, 3) uint8.

    - "lra": floor(255.5 y), y = 0.2989 red + 0.5870 green + 0.1140 blue of values up to 1, as in the authors' code.
      Here it is exact; in their float32 about 200 of the 16.7 million colours come out one level off.
    - "pil": as Pillow converts to its mode L, which rounds. One more for 26 percent of all colours.
    """
    import numpy as np

    weights = (2989, 5870, 1140) if method == "lra" else (19595, 38470, 7471)
    weighed = image.astype(np.int64) @ np.array(weights)
    return (weighed * 511 // 5_100_000 if method == "lra" else (weighed + 32768) >> 16).astype(np.uint8)


def _records(path: str, places: Places) -> "Iterator[tuple[str, int, np.ndarray]]":
    import numpy as np

    records = np.fromfile(path, dtype=np.uint8).reshape(_count_records(path), RECORD)
    for place in range(len(records)) if places is None else sorted(places):
        label, values = int(records[place, 0]), records[place, 1:]
        image = values.reshape(CHANNELS, SIDE, SIDE).transpose(1, 2, 0)
        yield f"{path}, image {place + 1}", label, image


def _pictures(path: str, places: Places) -> "Iterator[tuple[str, Any, np.ndarray]]":
    for place, row in table_rows(path, places, _COLUMNS):
        found, label = (row[column] for column in _COLUMNS)
        content = found.get("bytes") if isinstance(found, dict) else None
        if not isinstance(content, bytes):
            raise ValueError(f"{place}: expected the bytes of an image in 'img', got {found!r:.80}")
        yield place, label, read_picture(BytesIO(content), place, (SIDE, SIDE), "RGB")


class Photographs(PixelTask):
    """Photographs of ten kinds of things (Krizhevsky, 2009)."""

    generated = False
    file_configs = ("image",)
    file_parameters = ("grayscale",)
    file_names = "data_batch_1.bin ... data_batch_5.bin and test_batch.bin"
    export_configs = ()
    info = task_info(
        "image",
        title="Long Range Arena: Image",
        description="Photographs of 32 x 32 grey pixels, read one after the other; the label is what they show.",
        label_names=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
        text_columns=("pixels",),
        slice_columns=("brightness", "contrast"),
        column_meanings={
            "pixels": PIXELS_MEANING,
            "brightness": "mean of the pixels, rounded",
            "contrast": "standard deviation of the pixels, rounded",
        },
        vocabulary=PIXELS,
        modality="pixels",
        synthetic=False,
        license="other (CIFAR-10 names no licence)",
        limits=(
            "The last tenth of the training images are the validation split, in the order of their files. The authors' "
            "order is another, that of a shuffled copy.",
            BLACK_PIXELS,
        ),
    )

    def default_folder(self, config_name: str, params: Mapping[str, Any]) -> Path:
        return split_tables_folder(params, FOLDER)

    def plan_files(self, config_name: str, params: Mapping[str, Any], folder: Path) -> Plan:
        """The shards of train, validation and test.

        Raises:
            ValueError: files are missing, or of the wrong kind or size.
        """
        files, count = train_and_test(folder), parquet_length
        if not files:
            files, count = _batches(folder), _count_records
        counts = [count(path) for path in files["train"]]
        total = sum(counts)
        splits: dict[str, list[tuple[str, Places]]] = {
            split: [part for part in zip(files["train"], places, strict=True) if part[1]]
            for split, places in divide(counts, range(total * 9 // 10, total)).items()
        }
        splits["test"] = [(path, None) for path in files["test"]]
        return {
            split: [Shard(image_examples, (*part, params["grayscale"]), part[:1]) for part in members]
            for split, members in splits.items()
            if members
        }
