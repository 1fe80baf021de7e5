"""The pair of processes: the workload on every engine under every convention, as JSON in the file that is named."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

import subgrad
from distributed.engines import ENGINES, LAYOUTS, of_dtensors
from distributed.pair import PROCESSES, run_pair
from distributed.workload import CONVENTIONS, OPERATORS, carrying


def attempt(function: Callable[..., Any], *args: Any) -> Any:
    """What a function returns, or in words what it raises, which both processes do alike."""
    try:
        return function(*args)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def found(mesh: DeviceMesh) -> dict[str, Any]:
    return {
        "engines": {name: attempt(engine, mesh) for name, engine in ENGINES.items()},
        "operators": {
            name: {layout: attempt(of_dtensors, name, layout, mesh) for layout in LAYOUTS} for name in OPERATORS
        },
    }


def work(path: Path) -> None:
    mesh = dist.init_device_mesh("cpu", (PROCESSES,))
    everything = {}
    for convention in CONVENTIONS:
        with subgrad.use(convention):
            everything[str(convention)] = found(mesh)
    with subgrad.use("right"):
        everything["carrying"] = {name: attempt(ENGINES[name], mesh, carrying) for name in ("DDP", "FSDP2")}
    if dist.get_rank() == 0:
        path.write_text(json.dumps(everything))


if __name__ == "__main__":
    run_pair(work, Path(sys.argv[1]))
