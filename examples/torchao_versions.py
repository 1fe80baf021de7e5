"""torchao's quantisation-aware training on two versions of torch: one forward, two gradients.

The same model, data and torchao; torch 2.13 and 2.14. Losses are the same, gradients are not, and subgrad says so, and
by how much, on either version alone. The environments are made once, in the cache folder of `subgrad survey --torch`.

    python examples/torchao_versions.py

prints

    torch 2.13.0 loss 0.375020, under torch-2.13 the same gradient, under torch-2.14 another
    torch 2.14.1 loss 0.375020, under torch-2.13 another gradient, under torch-2.14 the same
    between the two versions the gradient changes by 29.0% of its norm; subgrad says 29.0%
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from torch import nn

VERSIONS = ("2.13.0", "2.14.1")
TORCHAO = "torchao==0.18.0"


def one_step(file: str) -> None:
    """Runs in an environment of its own: gradients as this torch makes them, and under two conventions."""
    from torchao.quantization import quantize_
    from torchao.quantization.qat import IntxFakeQuantizeConfig, QATConfig

    import subgrad

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 32))
    activations = IntxFakeQuantizeConfig(torch.int8, "per_token", is_symmetric=False)
    weights = IntxFakeQuantizeConfig(torch.int4, group_size=32)
    quantize_(model, QATConfig(activation_config=activations, weight_config=weights, step="prepare"))
    teacher, inputs = nn.Linear(64, 32), torch.randn(256, 64)
    targets = teacher(inputs).detach()

    def gradient(convention: str) -> tuple[torch.Tensor, float]:
        with subgrad.use(convention):
            loss = nn.functional.mse_loss(model(inputs), targets)
            return torch.cat([each.flatten() for each in torch.autograd.grad(loss, model.parameters())]), loss.item()

    found = {name: gradient(name) for name in ("torch", "torch-2.13", "torch-2.14")}
    torch.save({name: each[0] for name, each in found.items()} | {"loss": found["torch"][1]}, file)


def main() -> None:
    from subgrad.survey.environments import environment

    gradients = {}
    for version in VERSIONS:
        wanted = [f"torch=={version}", TORCHAO, "numpy"]
        python = environment(f"torchao-torch-{version}", wanted, lambda said: print(said, file=sys.stderr))
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "gradients.pt"
            subprocess.run([python, "-W", "ignore", __file__, "--one-step", file], check=True)
            found = gradients[version] = torch.load(file)
        same = {name: torch.equal(found["torch"], found[name]) for name in ("torch-2.13", "torch-2.14")}
        first = "the same gradient" if same["torch-2.13"] else "another gradient"
        second = "the same" if same["torch-2.14"] else "another"
        print(f"torch {version} loss {found['loss']:.6f}, under torch-2.13 {first}, under torch-2.14 {second}")
    old, new = (gradients[version]["torch"] for version in VERSIONS)
    said = gradients[VERSIONS[1]]
    measured, told = change(old, new), change(said["torch-2.13"], said["torch-2.14"])
    print(f"between the two versions the gradient changes by {measured:.1%} of its norm; subgrad says {told:.1%}")


def change(before: torch.Tensor, after: torch.Tensor) -> float:
    return ((after - before).norm() / before.norm()).item()


if __name__ == "__main__":
    one_step(sys.argv[2]) if sys.argv[1:2] == ["--one-step"] else main()
