"""Torchvision's models: `subgrad.grad` beside `torch.func.grad`, and an audited step beside a plain one.

    python benchmarks/real_models.py [--repeats 10] [--json out.json]

Gradients with batches of 32 in float32, audits with batches of 128 in bfloat16, channels last. Both contenders take
turns in one process; ratios are medians over turns. `kinks` is how many operators meet one.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torchvision
from torch import nn

import subgrad
from subgrad.audit.session import EVERY

LIMITS = {"grad": 2.5, "grad, no kink": 1.25, "audit": 1.10}


def milliseconds(run: Callable[[], Any]) -> float:
    _wait()
    begin = time.perf_counter()
    run()
    _wait()
    return 1e3 * (time.perf_counter() - begin)


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def transformer() -> nn.Module:
    layer = nn.TransformerEncoderLayer(256, 8, 1024, dropout=0.0, activation="relu", batch_first=True)
    return nn.Sequential(nn.TransformerEncoder(layer, 6, enable_nested_tensor=False), nn.Flatten(), nn.LazyLinear(10))


def programs(device: str) -> dict[str, tuple[nn.Module, torch.Tensor]]:
    images = torch.randn(32, 3, 224, 224, device=device)
    names = ("resnet18", "mobilenet_v2", "vgg11_bn")
    found = {name: (torchvision.models.get_model(name, weights=None), images) for name in names}
    tokens = torch.randn(32, 128, 256, device=device)
    tokens[:, ::8] = 0
    found["transformer"] = (transformer(), tokens)
    for model, _ in found.values():
        model.to(device)
        for each in model.modules():
            if isinstance(each, nn.Dropout):
                each.p = 0.0
            if isinstance(each, nn.Linear) and not isinstance(each, nn.LazyLinear) and each.bias is not None:
                nn.init.zeros_(each.bias)
    return found


def of_gradient(name: str, model: nn.Module, inputs: torch.Tensor, repeats: int) -> dict[str, Any]:
    torch.func.replace_all_batch_norm_modules_(model.train())  # `torch.func.grad` takes no running averages
    model(inputs)
    parameters = {key: value.detach() for key, value in model.named_parameters()}
    labels = torch.zeros(len(inputs), dtype=torch.long, device=inputs.device)

    def loss(given: dict[str, torch.Tensor]) -> torch.Tensor:
        out = torch.func.functional_call(model, given, (inputs,))
        return nn.functional.cross_entropy(out, labels)

    kinks = subgrad.element(loss)(parameters).kinks
    plain, ours = torch.func.grad(loss), subgrad.grad(loss)
    for run in (plain, ours, plain, ours):
        run(parameters)
    times = [(milliseconds(lambda: plain(parameters)), milliseconds(lambda: ours(parameters))) for _ in range(repeats)]
    ratio = median(other / one for one, other in times)
    what = "grad" if kinks else "grad, no kink"
    return {"model": name, "what": what, "kinks": kinks, "plain ms": median(one for one, _ in times), "ratio": ratio}


def of_audit(name: str, repeats: int) -> dict[str, Any]:
    model = torchvision.models.get_model(name, weights=None).cuda().to(torch.bfloat16)
    model = model.to(memory_format=torch.channels_last).train()
    x = torch.randn(128, 3, 224, 224, device="cuda", dtype=torch.bfloat16).contiguous(memory_format=torch.channels_last)
    labels, optimizer = torch.zeros(128, dtype=torch.long, device="cuda"), torch.optim.SGD(model.parameters(), lr=1e-4)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(model(x).float(), labels).backward()
        optimizer.step()

    for _ in range(3):
        step()
    times = []
    for _ in range(repeats):
        plain = milliseconds(lambda: [step() for _ in range(EVERY)])
        with subgrad.audit():  # a round has as many steps as there are from one that is recorded to the next
            audited = milliseconds(lambda: [step() for _ in range(EVERY)])
        times.append((plain / EVERY, audited / plain))
    return {
        "model": name,
        "what": "audit",
        "plain ms": median(one for one, _ in times),
        "ratio": median(b for _, b in times),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.manual_seed(0)
    rows = [of_gradient(name, *given, options.repeats) for name, given in programs("cuda").items()]
    rows += [of_audit(name, max(options.repeats // 2, 3)) for name in ("mobilenet_v2", "resnet18")]
    for row in rows:
        mark = "" if row["ratio"] <= LIMITS[row["what"]] else "  over"
        print(f"{row['model']:14} {row['what']:14} kinks {row.get('kinks', ''):4} plain {row['plain ms']:8.2f} ms  "
              f"ratio {row['ratio']:.2f}, limit {LIMITS[row['what']]}{mark}")  # fmt: skip
    if options.json:
        record = {"machine": torch.cuda.get_device_name(), "torch": str(torch.__version__)}
        record |= {"command": " ".join(["python", *sys.argv]), "rows": rows}
        options.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
