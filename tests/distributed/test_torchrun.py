"""``torchrun -m subgrad run train.py``: an unchanged training script, in two processes, under a convention."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import subgrad

TRAIN = """
import json, os, sys
from pathlib import Path

if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    sys.exit(3)

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
layer = torch.nn.Linear(2, 2, bias=False)
torch.nn.init.zeros_(layer.weight)  # so that every output is on the corner of relu, and on the lower bound of clamp
model = DistributedDataParallel(layer)
x = torch.tensor([[1.0, 2.0], [4.0, -8.0]])[dist.get_rank()]
y = model(x)
(torch.relu(y) * torch.tensor([4.0, 8.0]) + y.clamp(0, 6) * torch.tensor([16.0, -32.0])).sum().backward()
if dist.get_rank() == 0:
    Path(sys.argv[1]).write_text(json.dumps(layer.weight.grad.tolist()))
dist.barrier()
dist.destroy_process_group()
os._exit(0)  # where Python ends, torch's threads abort now and then, without subgrad as well
"""
# Half of each cotangent, times the mean of the two inputs.
WANTED = [[10.0 * 2.5, 10.0 * -3.0], [-12.0 * 2.5, -12.0 * -3.0]]


def torchrun(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(subgrad.__file__).parents[1]),
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
    }
    command = [sys.executable, "-W", "ignore", "-m", "torch.distributed.run", "--standalone", *arguments]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300)


@pytest.mark.long
def test_torchrun_sees_how_a_script_ends_and_restarts_it_under_the_convention(tmp_path: Path) -> None:
    """One start for both: it costs seconds."""
    (tmp_path / "train.py").write_text(TRAIN)
    processes = ("--nproc-per-node", "2", "--max-restarts", "1")
    done = torchrun(*processes, "-m", "subgrad", "run", "--convention", "mean", "train.py", "gradient", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert set(re.findall(r"exitcode: (-?\d+)", done.stderr)) == {"3"}
    assert json.loads((tmp_path / "gradient").read_text()) == WANTED
