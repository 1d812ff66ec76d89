"""What checkpoints tell of their inputs."""

import pytest

from hf_recurrent.hub.inputs import read_inputs


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ('{"texts": 1, "settings": {"text_column": "title"}}', {"texts": 1, "settings": {"text_column": "title"}}),
        ('{"texts": 2, "settings": [1]}', {"texts": 2}),
        ('{"settings": "banana", "more": 1}', {}),
        ("[1]", {}),
        ("{", {}),
    ],
)
def test_a_broken_file_of_a_copy_tells_what_can_be_read(tmp_path, content, found):
    (tmp_path / "inputs.json").write_text(content)
    assert read_inputs(tmp_path) == found
