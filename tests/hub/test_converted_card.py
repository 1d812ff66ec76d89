"""Cards of converted checkpoints and of fine-tuned ones: whose weights these are, and whether they may be published."""

import json
from dataclasses import replace

import pytest
from calibration_data import make_calibration
from card_factory import make_card

from hf_recurrent.cli.app import main
from hf_recurrent.files import FRONT_MATTER, changed_files, parse_yaml
from hf_recurrent.hub import lint_card, render_card
from hf_recurrent.hub.base_model import BaseModel, license_of, read_base_model, write_lineage
from hf_recurrent.hub.card import write_card
from hf_recurrent.hub.card_data import CardData, Paper
from hf_recurrent.hub.converted_card import (
    ConvertedData,
    put_calibrated,
    read_converted,
    render_converted,
    write_converted,
)
from hf_recurrent.hub.sections import without_curves
from hf_recurrent.hub.staging import stage_checkpoint
from hf_recurrent.models.common.depth_objectives import most_trained_steps
from hf_recurrent.registry import ARCHITECTURES
from support.albert import save_albert

COMMIT = "0123456789abcdef0123456789abcdef01234567"
OURO = BaseModel("ByteDance/Ouro-1.4B", "apache-2.0", revision=COMMIT)


def make_converted(**changes):
    fields = {
        "base_model": OURO,
        "repo_id": "org/ouro",
        "family": "ouro_recurrent",
        "auto_class": "AutoModelForCausalLM",
        "num_parameters": 1_400_000_000,
        "max_depth": 4,
        "layers_per_step": 24,
        "has_tokenizer": True,
        "paper": Paper("A paper", "https://example.org/paper", "@article{paper,\n  title = {{A Paper}}\n}\n"),
    }
    return ConvertedData(**{**fields, **changes})


def front_matter(text):
    return parse_yaml(FRONT_MATTER.match(text).group(1), "README.md")


def convert(*words):
    with pytest.raises(SystemExit) as finished:
        main(["convert", *map(str, words)])
    return finished.value.code


def write_readme(folder, *lines):
    (folder / "README.md").write_text("\n".join(["---", *lines, "---", "", "# A model", ""]))


def test_it_names_the_original_its_commit_and_its_licence():
    text = render_converted(make_converted())
    found = front_matter(text)
    assert (found["license"], found["base_model"], found["pipeline_tag"]) == (
        *("apache-2.0", "ByteDance/Ouro-1.4B"),
        "text-generation",
    )
    assert found["hf_recurrent"]["converted_from"] == {"name": OURO.name, "revision": COMMIT}
    assert "[ByteDance/Ouro-1.4B](https://huggingface.co/ByteDance/Ouro-1.4B) at commit `0123456789ab`" in text
    assert "1,400,000,000 parameters, and 24 layers applied at most 4 times" in text
    assert "**No**: no exit was calibrated" in text


def test_a_licence_that_the_hub_does_not_know_is_linked():
    base = BaseModel("org/albert", "other", "albert-licence", "https://example.org/licence")
    text = render_converted(make_converted(base_model=base))
    assert front_matter(text)["license_name"] == "albert-licence"
    assert "**Licence** of the weights: [albert-licence](https://example.org/licence)" in text


def test_an_exit_that_was_calibrated_since_is_shown_as_on_other_cards(tmp_path):
    write_converted(tmp_path, make_converted())
    calibration = make_calibration(trained_steps=8, max_depth=16)
    with changed_files(tmp_path) as change:
        put_calibrated(change, tmp_path, calibration)
    lint_card(tmp_path)
    text = (tmp_path / "README.md").read_text()
    assert "**Yes**: on `test`, steps **grow** strongly with depth (Spearman +0.97)" in text
    assert "With 95% confidence at most 1% of inputs" in text
    assert "**Beyond training**: full depth is 16 steps here, and training took at most 8." in text
    assert (tmp_path / read_converted(tmp_path).plots[0].path).is_file()
    (tmp_path / "README.md").write_text(text.replace("Yes", "No"))
    with pytest.raises(ValueError, match=r"README\.md is not what converted\.json renders to"):
        lint_card(tmp_path)


@pytest.mark.parametrize(("trained", "warned"), [(8, True), (16, False), (None, False)])
def test_steps_beyond_training_are_told(trained, warned):
    card = make_card(calibration=without_curves(make_calibration(trained_steps=trained, max_depth=16)))
    assert ("**Beyond training**" in render_card(card)) == warned


def test_the_most_steps_of_training_follow_from_the_config():
    make = ARCHITECTURES["ut"].config_class
    assert most_trained_steps(make(num_hidden_layers=6)) == 6
    assert most_trained_steps(make(num_hidden_layers=6, depth_sampling="uniform", depth_range=(2, 9))) == 9
    assert most_trained_steps(make(num_hidden_layers=6, depth_sampling="poisson_lognormal")) is None


@pytest.mark.parametrize(
    "name", ["apache-2.0", "mit", "bsd-3-clause", "cc-by-4.0", "cc-by-nc-sa-4.0", "bigscience-openrail-m"]
)
def test_licences_that_let_one_pass_copies_on(name):
    BaseModel("org/albert", name).check_license()


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        (None, "names no licence.*convert it with --license"),
        ("cc-by-nd-4.0", "licence is cc-by-nd-4.0: it is none that lets everybody publish changed copies"),
        ("cc-by-nc-nd-4.0", "cc-by-nc-nd-4.0"),
        ("other", r"other \(only for research\)"),
    ],
)
def test_weights_whose_licence_forbids_it_are_not_published(name, problem):
    with pytest.raises(ValueError, match=f"the weights come from org/albert, whose .*{problem}"):
        BaseModel("org/albert", name, "only for research" if name == "other" else None).check_license()


def test_a_fine_tuned_model_has_the_licence_of_what_it_began_with():
    card = make_card(base_model=BaseModel("org/albert", "cc-by-nc-4.0", revision=COMMIT))
    text = render_card(card)
    assert front_matter(text)["license"] == "cc-by-nc-4.0"
    assert front_matter(text)["base_model"] == "org/albert"
    assert "| Fine-tuned from | org/albert at 0123456789ab, licence cc-by-nc-4.0 |" in text
    assert CardData.from_dict(card.to_dict()) == card
    assert front_matter(render_card(make_card()))["license"] == "apache-2.0"


def test_what_a_licence_of_ones_own_data_is_only_their_owner_can_say():
    own = replace(make_card().benchmark, seed=None)
    assert front_matter(render_card(make_card(benchmark=own)))["license"] == "unknown"
    assert front_matter(render_card(make_card(benchmark=own, license="mit")))["license"] == "mit"


def test_a_model_of_ones_own_is_nobody_elses(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "gut"}')
    assert read_base_model(str(tmp_path)) is None
    write_card(tmp_path, make_card())
    assert read_base_model(str(tmp_path)) is None
    write_card(tmp_path, make_card(base_model=OURO))
    assert read_base_model(str(tmp_path)) == OURO


def test_a_copy_without_a_card_knows_whose_its_weights_are(tmp_path):
    (tmp_path / "ours").mkdir()
    write_card(tmp_path / "ours", make_card(base_model=OURO))
    for copy, origin in (("first", "ours"), ("second", "first")):
        (tmp_path / copy).mkdir()
        (tmp_path / copy / "config.json").write_text('{"model_type": "gut"}')
        assert read_base_model(str(tmp_path / copy)) is None
        write_lineage(tmp_path / copy, str(tmp_path / origin))
        assert read_base_model(str(tmp_path / copy)) == OURO


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (["license: mit"], {"license": "mit"}),
        (["license: unknown"], {}),
        (["license:", "- mit", "- other"], {}),
        (["tags: [a"], {}),
        (["license: other", "license_name: theirs"], {"license": "other", "license_name": "theirs"}),
    ],
)
def test_licence_of_a_card(lines, found, tmp_path):
    write_readme(tmp_path, *lines)
    assert license_of(tmp_path / "README.md") == found


def test_from_a_conversion_to_what_is_published(tmp_path, capsys):
    original, ours = tmp_path / "albert", tmp_path / "ours"
    save_albert(original, "AlbertForSequenceClassification")
    write_readme(original, "license: apache-2.0")
    assert convert(original, ours, "--license", "mit") == 1
    assert "--license is 'mit', but the card of albert says 'apache-2.0'" in capsys.readouterr().err
    assert not ours.exists()
    assert convert(original, ours) == 0
    lint_card(ours)
    assert read_base_model(str(ours)) == BaseModel("albert", "apache-2.0")
    staged = stage_checkpoint(ours, tmp_path / "staged", "org/albert-recurrent")
    assert read_converted(staged).repo_id == "org/albert-recurrent"
    assert 'name = "org/albert-recurrent"' in (staged / "README.md").read_text()
    # as weights that somebody got without a card
    data = read_converted(ours)
    write_converted(ours, replace(data, base_model=replace(data.base_model, license=None)))
    with pytest.raises(ValueError, match="whose card names no licence"):
        stage_checkpoint(ours, tmp_path / "again")
    (original / "README.md").unlink()
    assert convert(original, tmp_path / "named", "--license", "mit") == 0
    assert json.loads((tmp_path / "named" / "converted.json").read_text())["base_model"]["license"] == "mit"
