"""The GPU: what it is, what it has left, and whether it still answers after a failure."""

import importlib
import importlib.metadata
import importlib.util
import os
import platform
from typing import Any

import torch
import transformers

GIB = 2**30
PACKAGES = ("triton", "flash_attn", "kernels", "datasets", "evaluate", "pytest", "matplotlib")
KERNELS = ("flash_attn",)
MIN_CAPABILITY = (8, 0)


class NoDeviceError(RuntimeError):
    """There is no GPU that these checks can use."""


def require() -> None:
    """Raise NoDeviceError, in one line, where there is no usable GPU."""
    if not torch.cuda.is_available():
        built = torch.version.cuda
        found = f"torch {torch.__version__} was built " + (f"for CUDA {built}" if built else "without CUDA")
        raise NoDeviceError(f"no GPU: {found} and sees none; `python -m gpu.day --rehearse` runs every part on the CPU")
    if torch.version.hip is not None:
        raise NoDeviceError(
            f"no CUDA: torch {torch.__version__} was built for ROCm, and the checks are of CUDA's kernels"
        )
    capability = torch.cuda.get_device_capability()
    if capability < MIN_CAPABILITY:
        name, needed, has = torch.cuda.get_device_name(), *(".".join(map(str, c)) for c in (MIN_CAPABILITY, capability))
        raise NoDeviceError(f"{name} is of compute capability {has}: bfloat16 and the kernels need {needed}")


def version_of(package: str) -> str | None:
    """The version of an installed package, None for one that is not there."""
    if importlib.util.find_spec(package) is None:
        return None
    try:
        return importlib.metadata.version(package.replace("_", "-"))
    except importlib.metadata.PackageNotFoundError:
        return "?"


def trouble_with(package: str) -> str | None:
    """Why an installed package of kernels does not load, in one line; None if it does, or is not there."""
    version = version_of(package)
    if version is None:
        return None
    try:
        importlib.import_module(package)
    # a library that was linked to another CUDA raises what its loader happens to
    except Exception as error:
        return f"{package} {version} does not load with torch {torch.__version__}: {one_line(error)}"
    return None


def one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def facts(device: str) -> dict[str, Any]:
    """The machine and its versions."""
    found: dict[str, Any] = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "cores": os.cpu_count(),
        **{package: version_of(package) for package in PACKAGES},
        "trouble": [line for package in KERNELS if (line := trouble_with(package))],
    }
    if device == "cpu":
        return {"device": "cpu", **found}
    properties = torch.cuda.get_device_properties(0)
    return {
        "device": properties.name,
        "memory GiB": round(properties.total_memory / GIB, 1),
        "compute capability": f"{properties.major}.{properties.minor}",
        "multiprocessors": properties.multi_processor_count,
        "CUDA": torch.version.cuda,
        **found,
    }


def state(device: str) -> dict[str, Any]:
    """Memory in use and free; or, of a device that no longer answers, its error."""
    if device == "cpu":
        return {}
    try:
        torch.cuda.synchronize()
        free, total = torch.cuda.mem_get_info()
    except Exception as error:
        return {"lost": one_line(error)}
    return {
        "allocated GiB": round(torch.cuda.memory_allocated() / GIB, 3),
        "reserved GiB": round(torch.cuda.memory_reserved() / GIB, 3),
        "free GiB": round(free / GIB, 2),
        "total GiB": round(total / GIB, 2),
    }


def free_bytes(device: str) -> int:
    """Memory that a program may still take; of a CPU as much as toys need."""
    return 2 * GIB if device == "cpu" else torch.cuda.mem_get_info()[0]
