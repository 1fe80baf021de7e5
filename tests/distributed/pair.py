"""Two processes that know each other, forked, so that what is imported is imported once."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.multiprocessing import start_processes

PROCESSES = 2


def run_pair(work: Callable[..., None], *args: Any) -> None:
    """Call ``work`` in both of them, and wait until both are done."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory() as folder:
        start_processes(_connected, (Path(folder) / "store", work, *args), nprocs=PROCESSES, start_method="fork")


def _connected(rank: int, store: Path, work: Callable[..., None], *args: Any) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{store}",  # no port that others may hold
        rank=rank,
        world_size=PROCESSES,
        timeout=timedelta(seconds=120),
    )
    work(*args)
    dist.destroy_process_group()
