"""`hf-recurrent evaluate` on exported benchmarks that are not as they were exported."""

import json
import re

import pyarrow
import pyarrow.parquet
import pytest

SIZES = ("--benchmark_params", "{num_train: 4, num_validation: 4, num_test: 6}")
TEST = "original/test-00000-of-00001.parquet"


@pytest.fixture
def exported(succeed, tmp_path):
    folder = tmp_path / "listops"
    succeed("benchmark", "export", "listops", folder, "--benchmark_config", "original", *SIZES)
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


def test_damaged_files_are_named(refuse, run_folder, exported):
    file = exported / TEST
    file.write_bytes(file.read_bytes()[:200])
    message = refuse("evaluate", run_folder, exported)
    assert message.startswith(f"error: benchmark={str(exported)!r}: 'original' does not load (")
    assert message.endswith("export or download it again")


def test_examples_that_do_not_have_the_digest(refuse, run_folder, exported):
    change(exported / TEST, label=[0] * 6)
    assert "do not have the digest in its README.md" in refuse("evaluate", run_folder, exported)


def test_labels_that_the_benchmark_does_not_have(refuse, run_folder, exported):
    for file in (exported / "original").iterdir():
        table = pyarrow.parquet.read_table(file)
        metadata = json.loads(table.schema.metadata[b"huggingface"])
        metadata["info"]["features"]["label"]["names"] = [f"L{number}" for number in range(10)]
        pyarrow.parquet.write_table(table.replace_schema_metadata({"huggingface": json.dumps(metadata)}), file)
    readme = exported / "README.md"
    readme.write_text(re.sub(r"^( +'\d': )'(\d)'$", r"\1 L\2", readme.read_text(), flags=re.MULTILINE))
    assert "do not have the digest in its README.md" in refuse("evaluate", run_folder, exported)
