"""`training/accelerate`: files that accelerate's launcher reads, and whose settings each model and run accepts."""

import os

import pytest
import torch
from accelerate.commands.config.config_args import load_config_from_file
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin
from accelerate.utils.fsdp_utils import fsdp2_prepare_auto_wrap_policy
from accelerate.utils.launch import prepare_multi_gpu_env
from tiny_run import ROOT

from hf_recurrent import SUTConfig
from hf_recurrent.training.sharding import check_sharding, load_optimizer
from hf_recurrent.training.stages import join_processes_on_cpus
from support.families import BY_NAME, make_model

CONFIGS = sorted((ROOT / "training" / "accelerate").glob("*.yaml"))
SHARDED = [path for path in CONFIGS if path.stem.startswith("fsdp2")]


def parsed(path, *flags):
    """The launcher's arguments, with a file's."""
    words = ["--config_file", str(path), *flags, "train.py"]
    return _validate_launch_command(launch_command_parser().parse_args(words))[0]


def test_there_is_a_file_for_each_engine_and_size():
    assert {path.stem for path in CONFIGS} == {"cpu", "ddp", "ddp_nodes", "fsdp2", "fsdp2_nodes"}


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_launcher_takes_the_file(path):
    """It refuses keys that it does not know, but not those of FSDP."""
    config, known = load_config_from_file(str(path)), vars(launch_command_parser().parse_args(["train.py"]))
    assert set(config.fsdp_config) <= set(known)
    nodes = path.stem.endswith("_nodes")
    assert (config.num_machines > 1) == nodes
    arguments = parsed(path, *(["--main_process_ip", "127.0.0.1", "--machine_rank", "1"] if nodes else []))
    environment = prepare_multi_gpu_env(arguments)
    assert int(arguments.nproc_per_node) == config.num_processes / config.num_machines
    assert environment["ACCELERATE_MIXED_PRECISION"] == "no"
    assert (environment.get("ACCELERATE_USE_FSDP") == "true") == (config.distributed_type == DistributedType.FSDP)
    if nodes:
        assert (arguments.rdzv_endpoint, arguments.node_rank) == ("127.0.0.1:29500", 1)


@pytest.fixture(params=SHARDED, ids=lambda path: path.stem)
def plugin(request, monkeypatch):
    """What accelerate makes of a file in the processes that it has launched."""
    flags = ["--main_process_ip", "127.0.0.1", "--machine_rank", "1"]
    environment = prepare_multi_gpu_env(parsed(request.param, *(flags if "nodes" in request.param.stem else [])))
    for name in environment:
        if name.startswith(("FSDP_", "ACCELERATE_")):
            monkeypatch.setenv(name, environment[name])
    return FullyShardedDataParallelPlugin()


def test_files_of_fsdp_are_those_that_runs_accept(plugin):
    assert (plugin.fsdp_version, plugin.state_dict_type.name) == (2, "FULL_STATE_DICT")
    assert not plugin.cpu_ram_efficient_loading
    assert plugin.reshard_after_forward is True


def test_each_model_has_blocks_to_shard(plugin, variant):
    """By default those that it names; accelerate refuses a class that a model has none of."""
    model = make_model(variant)
    shards = fsdp2_prepare_auto_wrap_policy(plugin, model)
    wrapped = {type(module).__name__ for module in model.modules() if shards(module)}
    assert wrapped == model._no_split_modules
    assert wrapped


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"fsdp_version": 1}, "fsdp_version is 1: set it to 2"),
        ({"state_dict_type": "SHARDED_STATE_DICT"}, "fsdp_state_dict_type is SHARDED_STATE_DICT"),
        ({"cpu_ram_efficient_loading": True}, "fsdp_cpu_ram_efficient_loading is true"),
    ],
)
def test_other_ways_to_shard_are_refused(monkeypatch, changes, message):
    # accelerate sets it
    monkeypatch.setenv("FSDP_CPU_RAM_EFFICIENT_LOADING", "false")
    settings = {"fsdp_version": 2, "state_dict_type": "FULL_STATE_DICT", **changes}
    with pytest.raises(ValueError, match=message):
        check_sharding(make_model(BY_NAME["gut"]).config, FullyShardedDataParallelPlugin(**settings))


@pytest.mark.parametrize(
    ("gpus", "variables", "joined"),
    [
        (False, {"WORLD_SIZE": "2"}, True),
        (True, {"WORLD_SIZE": "2"}, False),
        (False, {"WORLD_SIZE": "1"}, False),
        (False, {}, False),
        # refused later on, and by another name
        (False, {"WORLD_SIZE": "2", "ACCELERATE_USE_FSDP": "true"}, False),
    ],
)
def test_processes_without_gpus_train_together(monkeypatch, gpus, variables, joined):
    """accelerate would take each for the only one, and its launcher does not tell them of use_cpu in its file."""
    monkeypatch.setattr("torch.accelerator.is_available", lambda: gpus)
    monkeypatch.setenv("ACCELERATE_USE_CPU", "false")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    join_processes_on_cpus()
    assert os.environ["ACCELERATE_USE_CPU"] == str(joined).lower()


def test_stacks_that_share_embeddings_are_not_sharded():
    with pytest.raises(ValueError, match="the two stacks of a sut share embeddings"):
        check_sharding(SUTConfig.preset("tiny", is_encoder_decoder=True), None)


def test_states_of_another_number_of_parameters_are_refused(tmp_path):
    whole, other = (torch.nn.Linear(2, 2, bias=bias) for bias in (True, False))
    torch.save(torch.optim.SGD(whole.parameters()).state_dict(), tmp_path / "optimizer.pt")
    message = (
        r"optimizer\.pt is the state of 2 parameters, and the model has 1: resume with the config of the checkpoint"
    )
    with pytest.raises(ValueError, match=message):
        load_optimizer(other, torch.optim.SGD(other.parameters()), tmp_path / "optimizer.pt")
