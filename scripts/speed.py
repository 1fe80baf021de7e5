"""Fill the tables of docs/speed.md from the records in benchmarks/records, which `scripts/records.py` shows in full.

python scripts/speed.py
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from records import ROOT, Record, markdown, milliseconds, stored
from sections import with_section

from subgrad.bench.measure import Benchmark, Timing

PAGE = ROOT / "docs" / "speed.md"
ON_GPU = ("clamp", "clamp_min", "maximum(x, number)", "abs", "relu6", "hardtanh")
ON_CPU = ("clamp", "clamp_min", "maximum(x, number)", "relu6", "relu", "abs", "maximum(x, y)")
LARGE, MIDDLE = 2**28, 2**20
Records = dict[str, Any]


def operators(records: Records) -> str:
    """Large tensors on a GPU: time and what is kept."""
    found = timings(records["rows_h200"], "bfloat16", LARGE)
    columns = ["", "torch, ms", "`min-norm`, ms", "times as fast", "kept by torch, bytes an entry", "by `min-norm`"]
    rows = []
    for name in ON_GPU:
        theirs, ours = found[name, "torch"], found[name, "subgrad"]
        kept = (f"{each.kept / each.size:.3g}" for each in (theirs, ours))
        times = (milliseconds(each.both) for each in (theirs, ours))
        rows.append([f"`{name}`", *times, f"{theirs.both / ours.both:.2f}", *kept])
    return markdown(columns, rows)


def cpu(records: Records) -> str:
    """A million entries on a CPU."""
    found = timings(records["rows_cpu_plain"], "float32", MIDDLE)
    columns = ["", "torch, ms", "`min-norm`, ms", "times as fast", "torch against torch"]
    rows = []
    for name in ON_CPU:
        theirs, ours, again = (found[name, each] for each in ("torch", "subgrad", "torch, again"))
        times = (milliseconds(each.both) for each in (theirs, ours))
        rows.append([f"`{name}`", *times, f"{ours.ratio:.2f}", f"{again.ratio:.2f}"])
    return markdown(columns, rows)


def models(records: Records) -> str:
    """Training steps of eleven models: over torch's own, in the mean and at worst."""
    columns = ["convention", "`subgrad build`", "geometric mean", "at worst", "peak memory, at worst"]
    rows = [
        [
            f"`{each['convention']}`",
            {"built": "yes", "not built": "no", "again": "torch against torch"}[each["front"]],
            f"{each['geometric mean']:.2f}",
            f"{each['worst ratio']:.2f}, {each['worst']}",
            f"{each['largest peak']:.2f}",
        ]
        for each in records["zoo_h200"]["summary"]
    ]
    return markdown(columns, rows)


def features(records: Records) -> str:
    """What the rest costs beside plain torch."""
    audit = {each["audit"]: each for each in records["audit_h200"]["audits"]}
    grads = [each["ratio"] for each in records["real_models_h200"]["rows"] if each["what"] == "grad"]
    free = [each["ratio"] for each in records["real_models_h200"]["rows"] if each["what"] == "grad, no kink"]
    armed = [each["armed"] for each in records["nonfinite_h200"]["armed"]]
    anomaly = [each["anomaly"] for each in records["nonfinite_h200"]["armed"]]
    rows = (
        ["`subgrad.audit(model)`, one step of ten recorded", f"{audit['default']['time']:.2f}", "audit_h200"],
        [
            "the same, comparing two conventions in one step of ten",
            f"{audit['compare, every 10th step']['time']:.2f}",
            "audit_h200",
        ],
        ["`subgrad.grad` where no kink is met, over `torch.func.grad`", between(free), "real_models_h200"],
        ["`subgrad.grad` where kinks are met", between(grads), "real_models_h200"],
        ["`subgrad.audit(model, nonfinite=True)`, armed against NaN", between(armed), "nonfinite_h200"],
        ["for comparison, torch's `detect_anomaly`", between(anomaly), "nonfinite_h200"],
    )
    return markdown(["", "times a plain step", "record"], ([*each[:2], link(each[2])] for each in rows))


def slower(records: Records) -> str:
    """Where it costs more than torch: the worst of each record."""
    small, strong = records["small_steps_cpu"]["programs"], records["zoo_strong_zero_h200"]["steps"]
    (mean,) = (
        each for each in records["zoo_h200"]["summary"] if (each["convention"], each["front"]) == ("mean", "not built")
    )

    def pooling(name: str) -> float:
        return max(each["ratios"][2] for each in records[name]["rows"])

    rows = (
        ("small steps on a CPU", max(each["ratios"]["built"] for each in small), "small_steps_cpu"),
        ("without `subgrad build`", max(each["ratios"]["not built"] for each in small), "small_steps_cpu"),
        ("a model under `mean`, without `subgrad build`", mean["worst ratio"], "zoo_h200"),
        (
            "a model with `strong_zero=True`",
            max(each["milliseconds ratio"] for each in strong if each["convention"] != "torch"),
            "zoo_strong_zero_h200",
        ),
        ("max-pooling that shares ties, on a GPU", pooling("max_pool_h200"), "max_pool_h200"),
        ("on a CPU", pooling("max_pool_cpu"), "max_pool_cpu"),
        ("on a CPU, without `subgrad build`", pooling("max_pool_cpu_unbuilt"), "max_pool_cpu_unbuilt"),
    )
    return markdown(["", "times torch's", "record"], ([what, f"{ratio:.2f}", link(name)] for what, ratio, name in rows))


def timings(record: Record, dtype: str, size: int) -> dict[tuple[str, str], Timing]:
    """Those of one dtype and size, by row and contender."""
    return {
        (each.row, each.contender): each
        for each in Benchmark.from_json(record).timings
        if (each.dtype, each.size) == (dtype, size)
    }


def between(ratios: Sequence[float]) -> str:
    return f"{min(ratios):.2f} to {max(ratios):.2f}"


def link(name: str) -> str:
    return f"[`{name}`](records/{name}.md)"


TABLES = {"operators": operators, "cpu": cpu, "models": models, "features": features, "slower": slower}


def filled(page: str, records: Records) -> str:
    """The page with its tables made anew."""
    for name, table in TABLES.items():
        page = with_section(page, name, table(records))
    return page


def main() -> int:
    PAGE.write_text(filled(PAGE.read_text(), stored()))
    print(f"{PAGE.relative_to(ROOT)}: {len(TABLES)} tables")
    return 0


if __name__ == "__main__":
    sys.exit(main())
