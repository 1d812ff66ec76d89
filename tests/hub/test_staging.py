"""What is staged for the Hub, and what is refused before anything is sent."""

import json
import shutil
from pathlib import Path

import pytest

from hf_recurrent.hub import read_results, render_card, write_results
from hf_recurrent.hub.publish import publish_checkpoint
from hf_recurrent.hub.results import stored_digest
from hf_recurrent.hub.staging import is_publishable, stage_checkpoint

REPO = "org/gut-listops"


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def edit_json(path: Path, **changes) -> None:
    data = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in data.items() if value is not ...}))


def test_stages_what_belongs_on_the_hub_and_nothing_else(run_folder, tmp_path):
    for stray in ("training_args.bin", "run.json", "recipe.yaml", "checkpoint-8/optimizer.pt", "notes.txt", ".env"):
        (run_folder / stray).parent.mkdir(exist_ok=True)
        (run_folder / stray).write_text("stray")
    (run_folder / "assets" / "unused.png").write_bytes(b"png")
    (run_folder / "old_module.py").write_text("raise RuntimeError")
    staged = stage_checkpoint(run_folder, tmp_path / "staged", REPO)
    found = files(staged)
    images = {figure["path"] for figure in read_results(run_folder)["figures"]}
    assert images
    assert found == (
        {"README.md", "results.json", "config.json", "model.safetensors"}
        | {"tokenizer.json", "tokenizer_config.json"}
        | {"configuration_gut.py", "modeling_gut.py"}
        | images
    )
    assert all(is_publishable(path) for path in found)


def test_config_gets_an_auto_map_and_forgets_where_it_was(run_folder, tmp_path):
    edit_json(run_folder / "config.json", auto_map=..., _name_or_path="/home/ada/run")
    edit_json(run_folder / "tokenizer_config.json", name_or_path="/home/ada/run")
    staged = stage_checkpoint(run_folder, tmp_path / "staged")
    config = json.loads((staged / "config.json").read_text())
    assert config["auto_map"] == {
        "AutoConfig": "configuration_gut.GUTConfig",
        "AutoModel": "modeling_gut.GUTModel",
        "AutoModelForSequenceClassification": "modeling_gut.GUTForSequenceClassification",
    }
    assert not [path for path in staged.rglob("*") if path.is_file() and b"/home/ada" in path.read_bytes()]


def test_the_card_names_its_new_home(run_folder, tmp_path):
    staged = stage_checkpoint(run_folder, tmp_path / "staged", REPO)
    text = (staged / "README.md").read_text()
    assert f'AutoTokenizer.from_pretrained("{REPO}")' in text
    assert text == render_card(read_results(staged))
    assert read_results(run_folder)["name"] != REPO


def test_evaluation_results_follow_the_card(run_folder, tmp_path):
    results = read_results(run_folder)
    write_results(run_folder, {**results, "data": {**results["data"], "dataset_id": "org/listops"}})
    staged = stage_checkpoint(run_folder, tmp_path / "staged", REPO)
    assert ".eval_results/listops.yaml" in files(staged)
    assert is_publishable(".eval_results/listops.yaml")


@pytest.mark.parametrize(
    "path",
    [
        "training_args.bin",
        "assets/a/b.png",
        "x.py",
        "modeling_bert.py",
        "run.json",
        "../config.json",
    ],
)
def test_never_publishable(path):
    assert not is_publishable(path)


def shard(folder: Path) -> set[str]:
    """Save the weights anew, in several files -> the names of these."""
    from transformers import AutoModelForSequenceClassification

    model = AutoModelForSequenceClassification.from_pretrained(folder)
    (folder / "model.safetensors").unlink()
    model.save_pretrained(folder, max_shard_size="100KB")
    return {path.name for path in folder.glob("model-*.safetensors")}


def test_sharded_weights_travel_with_their_index(run_folder, tmp_path):
    shards = shard(run_folder)
    assert len(shards) > 1
    staged = stage_checkpoint(run_folder, tmp_path / "staged")
    assert shards | {"model.safetensors.index.json"} <= files(staged)
    (run_folder / sorted(shards)[0]).unlink()
    with pytest.raises(ValueError, match=r"does not load: .*model-00001"):
        publish_checkpoint(run_folder, REPO, dry_run=True)


def test_shards_of_earlier_weights_are_left_behind(run_folder, tmp_path):
    shards, digest = shard(run_folder), stored_digest(run_folder)
    (run_folder / "model-00001-of-00099.safetensors").write_bytes(b"")
    assert stored_digest(run_folder) == digest
    staged = stage_checkpoint(run_folder, tmp_path / "staged")
    assert {path.name for path in staged.glob("model-*")} == shards


def test_a_card_that_somebody_wrote_has_the_pictures_that_it_shows_and_code_of_this_package(run_folder, tmp_path):
    results = read_results(run_folder)
    (run_folder / "results.json").unlink()
    (run_folder / "assets" / "unused.png").write_bytes(b"png")
    (run_folder / "modeling_ut.py").write_text("raise RuntimeError")
    staged = stage_checkpoint(run_folder, tmp_path / "staged")
    assert {f"assets/{path.name}" for path in staged.glob("assets/*")} == {
        figure["path"] for figure in results["figures"]
    }
    assert {path.name for path in staged.glob("*.py")} == {"configuration_gut.py", "modeling_gut.py"}
    assert (staged / "README.md").read_text() == (run_folder / "README.md").read_text()


def break_architecture(folder):
    edit_json(folder / "config.json", architectures=["BertModel"])


def break_model_type(folder):
    edit_json(folder / "config.json", model_type="bert")


def break_config(folder):
    (folder / "config.json").write_text("{")


def save_a_config_class(folder):
    edit_json(folder / "config.json", architectures=["GUTConfig"])


def leave_a_path(folder):
    edit_json(folder / "config.json", task={"folders": ["see /home/ada/data"]})


def leave_a_token(folder):
    edit_json(folder / "config.json", key="hf_" + "a" * 34)


def count_results(folder):
    edit_json(folder / "results.json", splits=5)


def pickle_weights(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def edit_card(folder):
    (folder / "README.md").write_text((folder / "README.md").read_text().replace("## Limitations", "## Merits"))


def drop_image(folder):
    shutil.rmtree(folder / "assets")


def drop_card(folder):
    (folder / "README.md").unlink()


def drop_licence(folder):
    (folder / "results.json").unlink()
    text = (folder / "README.md").read_text()
    (folder / "README.md").write_text(text.replace("license: apache-2.0\n", ""))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (break_architecture, r"architectures is \['BertModel'\]: save a model of this package"),
        (save_a_config_class, r"architectures is \['GUTConfig'\]: save a model"),
        (break_model_type, "model_type is 'bert': expected one of"),
        (break_config, "config.json is not JSON"),
        (leave_a_path, "config.json cannot be published: it holds the local path /home/ada"),
        (leave_a_token, "config.json cannot be published: it holds an access token"),
        (count_results, "results.json cannot be rendered"),
        (pickle_weights, "does not load: .*model.safetensors"),
        (edit_card, "README.md is not what results.json renders to"),
        (drop_image, "the image 'assets/test_steps.png' is missing"),
        (drop_card, "has no README.md: a published checkpoint needs a model card"),
        (drop_licence, "the front matter lacks 'license'"),
    ],
)
def test_a_broken_folder_is_refused_by_name(run_folder, damage, message):
    damage(run_folder)
    with pytest.raises(ValueError, match=message):
        publish_checkpoint(run_folder, REPO, dry_run=True)


def test_other_folders_are_no_checkpoints(tmp_path):
    with pytest.raises(ValueError, match=r"has no config.json: it is not a checkpoint"):
        publish_checkpoint(tmp_path, REPO, dry_run=True)


def test_one_file_of_weights_wins_over_an_old_index(run_folder, tmp_path):
    (run_folder / "model.safetensors.index.json").write_text("{}")
    staged = stage_checkpoint(run_folder, tmp_path / "staged")
    assert not (staged / "model.safetensors.index.json").exists()


def test_pictures_in_every_notation_travel(run_folder, tmp_path):
    (run_folder / "results.json").unlink()
    mass = (run_folder / "assets" / "test_mass.png").read_bytes()
    shown = {"assets/tag.png", "assets/dot.png"}
    for name in shown:
        (run_folder / name).write_bytes(mass)
    with open(run_folder / "README.md", "a") as file:
        file.write('\n<img width="3" src="assets/tag.png">\n![d](./assets/dot.png)\n')
    assert shown <= files(stage_checkpoint(run_folder, tmp_path / "staged"))


@pytest.mark.slow
def test_dry_run_lists_files_and_sizes_and_needs_no_network(run_folder, monkeypatch):
    monkeypatch.setattr("huggingface_hub.HfApi.whoami", None)
    # it loads in a process without this package, from shards and by the `auto_map` that staging gives it
    shards = shard(run_folder)
    edit_json(run_folder / "config.json", auto_map=...)
    done = publish_checkpoint(run_folder, REPO, dry_run=True)
    assert done.commit is None
    assert done.url is None
    for name in shards:
        assert done.files[name] == (run_folder / name).stat().st_size
    assert {"README.md", "config.json", "modeling_gut.py", "model.safetensors.index.json"} | shards <= done.files.keys()
