"""What machines offer a search, and how many trainings fit on them at once. It is asked first, so it imports little."""

import math
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from search.config import SearchConfig


class Node(NamedTuple):
    """One machine: the CPU cores and the GPUs that a search may use there."""

    cores: int
    gpus: int = 0


def this_machine() -> Node:
    return Node(num_cores(), num_gpus())


def num_cores() -> int:
    """Cores this process may use: affinity and the container's quota count."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        cores = min(cores, math.ceil(int(quota) / int(period)))
    except (OSError, ValueError):
        pass  # no quota
    return max(1, cores)


def num_gpus() -> int:
    """NVIDIA GPUs this process may use, those hidden by CUDA_VISIBLE_DEVICES left out. torch is not asked: a build
    without CUDA would see none, and a search would go to the CPU without a word."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    named = [name for name in (visible or "").split(",") if name.strip() not in ("", "-1", "NoDevFiles")]
    if visible is not None and not named:
        return 0
    found = physical_gpus()
    return found if visible is None else min(found, len(named))


def physical_gpus() -> int:
    """NVIDIA GPUs of this machine or container: its device files, or what nvidia-smi lists."""
    devices = len(list(Path("/dev").glob("nvidia[0-9]*")))
    if devices:
        return devices
    try:
        listed = subprocess.run(["nvidia-smi", "--list-gpus"], capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return 0
    return sum(line.startswith("GPU ") for line in listed.stdout.splitlines())


def gpu_share(config: SearchConfig, nodes: Sequence[Node]) -> float:
    """The GPUs each training gets: what is asked for, or one where there are any. 0 is the CPU."""
    if config.gpus_per_trial is not None:
        return config.gpus_per_trial
    return float(any(node.gpus for node in nodes))


def num_slots(config: SearchConfig, nodes: Sequence[Node]) -> int:
    """How many trainings run at once on `nodes`; each is on one of them. Raises ValueError when not even one fits."""
    cores, share = config.cpus_per_trial, gpu_share(config, nodes)
    most_cores = max((node.cores for node in nodes), default=0)
    if cores > most_cores:
        where = "the cores there are" if len(nodes) == 1 else "the cores of the largest machine"
        raise ValueError(f"cpus_per_trial = {cores}: must be in 1..{most_cores}, {where}")
    if share and not any(node.gpus for node in nodes):
        where = "on this machine" if len(nodes) == 1 else f"on these {len(nodes)} machines"
        raise ValueError(f"gpus_per_trial = {share:g}: must be 0, there is no GPU {where}")
    fitting = 0
    for node in nodes:
        gpu_slots = node.gpus * math.floor(1 / share + 1e-9) if share else math.inf
        fitting += int(min(node.cores // cores, gpu_slots))
    if not fitting:
        most_cores = max(node.cores for node in nodes if node.gpus)
        raise ValueError(f"cpus_per_trial = {cores}: must be in 1..{most_cores}, the cores of the machines with a GPU")
    return min(fitting, config.workers) if config.workers else fitting


def in_words(config: SearchConfig, nodes: Sequence[Node]) -> str:
    """What runs where, in one sentence."""
    slots, share = num_slots(config, nodes), gpu_share(config, nodes)
    each = f"{config.cpus_per_trial} of {sum(node.cores for node in nodes)} cores"
    if share:
        gpus = sum(node.gpus for node in nodes)
        each += f" and {share:g} of {gpus} GPU{'s' if gpus > 1 else ''}"
    return f"{slots} at a time, {each} each"
