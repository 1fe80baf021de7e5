"""Training steps of torchvision's classification models under conventions, against torch's own, by turns in one run.

python benchmarks/zoo.py --json benchmarks/records/zoo_h200.json
python benchmarks/zoo.py --compiled --models resnet18 mobilenet_v2
python benchmarks/zoo.py --device cpu --tiny
python benchmarks/zoo.py --conventions min-norm min-norm+strong-zero --built yes

Times are of the whole step (host and device, whichever takes longer), of the host until it has called everything, and
of the device where the host does not keep it waiting. Ratios are to torch's, the mean of two processes without subgrad,
turn by turn; the noise is by how much these two differ. All processes take turns on the same cores. A star: over its
limit by more than the noise.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from math import exp, log
from pathlib import Path
from statistics import median
from typing import Any

MODELS = (
    *("mobilenet_v2", "mobilenet_v3_large", "resnet18", "resnet50", "densenet121", "squeezenet1_1", "alexnet"),
    *("vgg11_bn", "googlenet", "shufflenet_v2_x1_0", "regnet_y_400mf", "mnasnet1_0"),
)
TINY = ("resnet18", "squeezenet1_1", "googlenet")
CONVENTIONS = ("min-norm", "torch-2.13", "torch-2.14", "mean")
# What a step may take of torch's time: built, and not; `mean` is what torch gives nowhere.
LIMITS = {"built": 1.03, "not built": 1.10, "compiled": 1.03}
LIMITS_OF_MEAN = {"built": 1.10, "not built": 1.25, "compiled": 1.03}
STRONG_ZERO, LIMIT_OF_STRONG_ZERO = "+strong-zero", 1.03  # behind a convention's name
GEOMETRIC_MEAN, PEAK = 1.00, 1.005
Contender = tuple[str, str]  # a convention, and "built" or "not built"


class Apart:
    """A worker in a process of its own, and what it has answered."""

    def __init__(self, contender: Contender, device: str):
        self.contender = contender
        environment = {**os.environ, "SUBGRAD_FRONT": "auto" if contender[1] == "built" else "never"}
        environment["PYTHONHASHSEED"] = "0"  # processes differ by how their dictionaries lie, too
        command = [sys.executable, str(Path(__file__).with_name("zoo_worker.py")), contender[0], device]
        self.process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def send(self, *question: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()

    def receive(self) -> Any:
        """Raises RuntimeError with what was raised there."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the process of {self.contender} ended with status {self.process.wait()}")
        answer, error = json.loads(line)
        if error:
            raise RuntimeError(f"{self.contender}: {error}")
        return answer

    def ask(self, *question: Any) -> Any:
        self.send(*question)
        return self.receive()

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


def measure(workers: list[Apart], name: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """One model with all contenders."""
    for worker in workers:
        worker.send("make", name, options.batch, options.pixels, options.dtype, options.compiled)
    for worker in workers:
        worker.receive()
    peaks = [worker.ask("peak") for worker in workers]
    for worker in workers:
        worker.ask("turn")
    turns = [[worker.ask("turn") for worker in workers] for _ in range(options.repeats)]
    for worker in workers:
        worker.ask("drop")
    found = []
    for number, worker in enumerate(workers):
        in_all, of_host, of_device = (median(turn[number][part] for turn in turns) for part in range(3))
        found.append(
            {
                **{"model": name, "convention": worker.contender[0], "front": worker.contender[1]},
                **{"milliseconds": in_all, "host": of_host, "device": of_device, "peak bytes": peaks[number]},
            }
        )
    for number, row in enumerate(found):
        for part, name in enumerate(("milliseconds", "host", "device")):
            row[f"{name} ratio"] = median(turn[number][part] * 2 / (turn[0][part] + turn[1][part]) for turn in turns)
        row["peak bytes ratio"] = row["peak bytes"] / found[0]["peak bytes"] if found[0]["peak bytes"] else 1.0
    for row in found:
        row["noise"] = abs(found[0]["milliseconds ratio"] - found[1]["milliseconds ratio"])
    return found


def limit(row: dict[str, Any], compiled: bool) -> float:
    if row["convention"].endswith(STRONG_ZERO):
        return LIMIT_OF_STRONG_ZERO
    limits = LIMITS_OF_MEAN if row["convention"] == "mean" else LIMITS
    return limits["compiled" if compiled else row["front"]]


def is_over(row: dict[str, Any], compiled: bool) -> bool:
    """Whether a step takes longer than it may, by more than torch differs from itself."""
    return row["convention"] != "torch" and row["milliseconds ratio"] > limit(row, compiled) + row["noise"]


def show(rows: list[dict[str, Any]], compiled: bool) -> None:
    own = rows[0]
    print(
        f"{own['model']:20} torch {'':24} {own['milliseconds']:9.2f} ms, host {own['host']:8.2f}, device "
        f"{own['device']:8.2f}, peak {own['peak bytes'] / 2**30:6.2f} GiB"
    )
    for row in rows[1:]:
        slow, large = is_over(row, compiled), row["peak bytes ratio"] > PEAK
        print(
            f"{'':20} {row['convention']:20} {row['front']:9} {row['milliseconds ratio']:9.3f} {'*' if slow else ' '} "
            f"host {row['host ratio']:8.3f}, device {row['device ratio']:8.3f}, peak {row['peak bytes ratio']:6.3f} "
            f"{'*' if large else ''}"
        )
    sys.stdout.flush()


def summarise(rows: list[dict[str, Any]], compiled: bool, say: Callable[[str], Any]) -> list[dict[str, Any]]:
    """The geometric mean and the worst model of each contender."""
    found = []
    for contender in dict.fromkeys((row["convention"], row["front"]) for row in rows):
        of_contender = [row for row in rows if (row["convention"], row["front"]) == contender]
        if contender == ("torch", ""):
            continue
        worst = max(of_contender, key=lambda row: row["milliseconds ratio"])
        mean = exp(sum(log(row["milliseconds ratio"]) for row in of_contender) / len(of_contender))
        over = [row["model"] for row in of_contender if is_over(row, compiled)]
        found.append(
            {
                **{"convention": contender[0], "front": contender[1], "geometric mean": mean, "over their limit": over},
                **{
                    "worst": worst["model"],
                    "worst ratio": worst["milliseconds ratio"],
                    "limit": 1.0 if contender[0] == "torch" else limit(worst, compiled),
                },
                "largest peak": max(row["peak bytes ratio"] for row in of_contender),
            }
        )
        is_slow = contender[1] == "built" and contender[0] != "mean" and mean > GEOMETRIC_MEAN
        say(
            f"{contender[0]:20} {contender[1]:9} geometric mean {mean:6.3f}{'*' if is_slow else ' '} worst "
            f"{worst['milliseconds ratio']:6.3f} ({worst['model']}), limit {found[-1]['limit']:.2f}, "
            f"{len(over)} of {len(of_contender)} over it; largest peak {found[-1]['largest peak']:.3f}"
        )
    return found


def is_built() -> bool:
    from subgrad.kernels.native import build

    return build.library().exists()


def chosen(options: argparse.Namespace) -> list[Contender]:
    fronts = {"both": ["built", "not built"], "yes": ["built"], "no": ["not built"]}[options.built]
    if "built" in fronts and not is_built():
        print("The C++ part is not built (subgrad build): measured without it alone.", file=sys.stderr)
        fronts = ["not built"]
    contenders = [(convention, front) for front in fronts for convention in options.conventions]
    return [("torch", ""), ("torch", "again"), *contenders]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--models", nargs="+", default=None, help="names, or 'all' of torchvision's")
    parser.add_argument("--conventions", nargs="+", default=list(CONVENTIONS))
    parser.add_argument(
        "--built", choices=("both", "yes", "no"), default="both", help="with the C++ part, without, both"
    )
    parser.add_argument("--compiled", action="store_true")
    parser.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--pixels", type=int, default=224)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--tiny", action="store_true", help="small batches of small images, to try the script")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    for name in options.conventions:
        if "+" in name and not name.endswith(STRONG_ZERO):
            parser.error(f"{name!r}: with strong zeros it is {name.partition('+')[0]}{STRONG_ZERO}")
    if options.tiny:
        options.batch, options.pixels, options.repeats, options.dtype = 2, 64, 3, "float32"
    if options.models == ["all"]:
        import torchvision

        options.models = torchvision.models.list_models(module=torchvision.models)
    options.models = options.models or list(TINY if options.tiny else MODELS)
    return options


def main() -> None:
    options = parse()
    workers = [Apart(contender, options.device) for contender in chosen(options)]
    rows: list[dict[str, Any]] = []
    failed: dict[str, str] = {}
    try:
        for name in options.models:
            try:
                rows += measure(workers, name, options)
                show(rows[-len(workers) :], options.compiled)
            except RuntimeError as error:  # what is left of this model in the others is in the way: begin anew
                print(f"{name:20} failed: {error}")
                failed[name] = str(error)
                for worker in workers:
                    worker.end()
                workers = [Apart(worker.contender, options.device) for worker in workers]
            store(rows, failed, options)  # with each model, since a run may be cut off
    finally:
        for worker in workers:
            worker.end()
    summarise(rows, options.compiled, print)


def store(rows: list[dict[str, Any]], failed: dict[str, str], options: argparse.Namespace) -> None:
    if not options.json:
        return
    import torch

    machine = torch.cuda.get_device_name() if options.device == "cuda" else "CPU, 1 thread"
    record = {"machine": machine, "torch": str(torch.__version__), "command": " ".join(["python", *sys.argv])}
    given = {name: getattr(options, name) for name in ("dtype", "batch", "pixels", "compiled", "repeats")}
    summary = summarise(rows, options.compiled, lambda _: None)
    record |= {**given, "steps": rows, "summary": summary, "failed": failed}
    options.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
