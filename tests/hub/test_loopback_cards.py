"""Which cards the loopback Hub takes."""

import pytest
from loopback_files import FILES, commit, send_commit

from support.loopback_hub.cards import check_card
from support.loopback_hub.plain import file_line

# huggingface_hub 2.4 sends large files in a way that its HTTP library has deprecated
pytestmark = [pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning"), pytest.mark.slow]


RESULT = "model-index: [{name: m, results: [{task: {type: t}, dataset: {name: d, type: %s}, metrics: [%s]}]}]"
GOOD_CARDS = [
    (
        "model",
        "license: [mit, other]\nlicense_name: own\nlanguage: en\nbase_model: org/y\ndatasets: [org/d]\nx: {y: 1}",
    ),
    ("model", RESULT % ("org/d", "{type: accuracy, value: 0.5}")),
    ("dataset", "configs:\n- {config_name: a, data_files: [{split: test, path: a/*}]}\nsize_categories: ['1K<n<10K']"),
    ("space", "title: t\nsdk: gradio\ncolorFrom: red"),
]
BAD_CARDS = [
    ("model", "license: mitt", '"license" must be one of'),
    ("model", "license: other", '"license_name" is required'),
    ("model", "license: mit\nlicense: mit", "duplicated mapping key"),
    ("model", "- license", "must be a mapping"),
    ("model", "license: [", "YAML Metadata Error"),
    ("model", "x: !!python/object/apply:os.getcwd []", "could not determine a constructor"),
    ("model", "x: {y: [1, .nan]}", '"x.y[1]" must be a finite number'),
    ("model", "datasets: [/local/path]", '"datasets[0]" with value "/local/path" is not valid'),
    ("model", "base_model: runs/a/b", '"base_model" with value'),
    ("model", "tags: a", '"tags" must be an array'),
    ("model", "metrics: [null]", '"metrics[0]" must be a string'),
    ("model", "language: [english]", '"language[0]" with value "english"'),
    ("model", "pipeline_tag: 3", '"pipeline_tag" must be a string'),
    ("model", "model-index: [{name: m}]", '"model-index[0].results" is required'),
    ("model", "model-index: [{results: []}]", '"model-index[0].name" is required'),
    ("model", RESULT % ("my data", "{type: a, value: 1}"), '"model-index[0].results[0].dataset.type" with value'),
    ("model", RESULT % ("d", "{type: a}"), '"model-index[0].results[0].metrics[0].value" is required'),
    ("dataset", "configs: [{data_files: a}]", '"configs[0].config_name" is required'),
    ("dataset", "configs: [{config_name: a}]", '"configs[0].data_files" is required'),
    ("dataset", "size_categories: [big]", '"size_categories[0]" must be one of'),
    ("dataset", "task_categories: a", '"task_categories" must be an array'),
    ("space", "sdk: own", '"sdk" must be one of'),
]


@pytest.mark.parametrize(("kind", "yaml"), GOOD_CARDS)
def test_good_cards(kind, yaml):
    assert check_card(f"---\n{yaml}\n---\n", kind) == ([], [])
    assert check_card("# no metadata\n", kind) == ([], ["empty or missing yaml metadata in repo card"])


@pytest.mark.parametrize(("kind", "yaml", "message"), BAD_CARDS)
def test_bad_cards(kind, yaml, message):
    (error,) = check_card(f"---\n{yaml}\n---\n", kind)[0]
    assert message in error


def test_bad_cards_are_refused_early_and_late(hub, api, repository):
    readme = b"---\nlicense: mitt\n---\n"
    with pytest.raises(ValueError, match=r'Invalid metadata in README.md.\n- "license" must be one of'):
        commit(api, {**FILES, "README.md": readme})
    assert hub.called("preupload") == []
    status, answer = send_commit(hub, file_line("README.md", readme))
    assert status == 400
    assert '"license" must be one of' in answer["errors"][0]["message"]
    assert len(repository.commits) == 1
