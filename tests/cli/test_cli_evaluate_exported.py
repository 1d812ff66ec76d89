"""`hf-recurrent evaluate` on exported benchmarks that are not as they were exported."""

import json
import re

import pyarrow
import pyarrow.parquet
import pytest

SIZES = [word for size in ("num_train=4", "num_validation=4", "num_test=6") for word in ("--set", size)]
TEST = "original/test-00000-of-00001.parquet"


@pytest.fixture
def exported(succeed, tmp_path):
    folder = tmp_path / "listops"
    succeed("benchmark", "export", "listops", folder, "--config", "original", *SIZES)
    return folder


def change(file, **columns):
    """Replace columns of a Parquet file, in its own schema."""
    table = pyarrow.parquet.read_table(file)
    for name, values in columns.items():
        place = table.schema.get_field_index(name)
        table = table.set_column(
            place, table.schema.field(place), pyarrow.array(values, table.schema.field(place).type)
        )
    pyarrow.parquet.write_table(table, file)


def with_digest(folder):
    """Write the digest of what is in the files into the card, as somebody would who made other examples."""
    from hf_recurrent.benchmarks.export.card import DIGEST_PREFIX
    from hf_recurrent.benchmarks.export.parquet import rows_digest

    readme = folder / "README.md"
    text = readme.read_text()
    rows = {
        path.name.partition("-")[0]: pyarrow.parquet.read_table(path).to_pylist()
        for path in (folder / "original").iterdir()
    }
    digest = rows_digest(rows, [str(number) for number in range(10)])
    readme.write_text(re.sub(rf"{DIGEST_PREFIX}[0-9a-f]{{64}}", DIGEST_PREFIX + digest, text))


@pytest.mark.parametrize("damage", [b"", b"no Parquet", None])
def test_damaged_files_are_named(refuse, run_folder, exported, damage):
    file = exported / TEST
    file.write_bytes(file.read_bytes()[:200] if damage is None else damage)
    message = refuse("evaluate", run_folder, exported)
    assert message.startswith(f"error: benchmark={str(exported)!r}: 'original' does not load (")
    assert message.endswith("export or download it again")


def test_examples_that_do_not_have_the_digest(refuse, run_folder, exported):
    change(exported / TEST, label=[0] * 6)
    assert "do not have the digest in its README.md" in refuse("evaluate", run_folder, exported)


def test_words_that_the_checkpoint_does_not_know(refuse, run_folder, exported):
    change(exported / TEST, text=["[MAX 2 banana ]"] * 6)
    with_digest(exported)
    message = refuse("evaluate", run_folder, exported)
    assert "an example of listops holds a word that the tokenizer does not know: text '[MAX 2 banana ]'" in message


def test_labels_that_the_benchmark_does_not_have(refuse, run_folder, exported):
    for file in (exported / "original").iterdir():
        table = pyarrow.parquet.read_table(file)
        metadata = json.loads(table.schema.metadata[b"huggingface"])
        metadata["info"]["features"]["label"]["names"] = [f"L{number}" for number in range(10)]
        pyarrow.parquet.write_table(table.replace_schema_metadata({"huggingface": json.dumps(metadata)}), file)
    readme = exported / "README.md"
    readme.write_text(re.sub(r"^( +'\d': )'(\d)'$", r"\1 L\2", readme.read_text(), flags=re.MULTILINE))
    message = refuse("evaluate", run_folder, exported)
    assert "are L0, L1, " in message
    assert "but those of listops are 0, 1, " in message


def test_what_a_folder_and_a_device_cannot_be(refuse, run_folder):
    message = refuse("evaluate", run_folder, "listops", "--revision", "main")
    assert f"revision is 'main', but {run_folder} is a local folder, which has none: leave it out" in message
    assert "device='meta' is not available here" in refuse("evaluate", run_folder, "listops", "--device", "meta")
    assert "device='' is not available here" in refuse("evaluate", run_folder, "listops", "--device", "")


@pytest.mark.parametrize("flags", [["--limit", "0"], ["--batch-size", "many"], ["--json", "file/inside"]])
def test_a_wrong_option_is_named_with_its_value(refuse, run_folder, tmp_path, monkeypatch, flags):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    message = refuse("evaluate", run_folder, "listops", *flags)
    assert message.startswith(f"error: Invalid value for '{flags[0]}': ")
    assert flags[1] in message
