"""Write docs/records from the records in benchmarks/records: of `subgrad bench`, and of the scripts in benchmarks.

python scripts/records.py
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from subgrad.bench.measure import RIVALS, Benchmark
from subgrad.report.bench import NONE, Line, front, groups, lines, milliseconds, ratio, share

ROOT = Path(__file__).resolve().parents[1]
RECORDS = ROOT / "benchmarks" / "records"
PAGES = ROOT / "docs" / "records"

INDEX = """# Records of speed and memory

Written by `make speed` from `benchmarks/records`. Each has its machine, its version of torch and the command that made
it. [Speed and memory](../speed.md) is what they come to. Medians, by turns: torch and subgrad.

{records}

## How to read it

- *both*: forward and backward. Each is measured in a process of its own, torch's without any kernel of ours. All keep
  the memory that they free and use it again at once, as allocators for numerical work do: else what is measured on a
  CPU is how the system gives it back. There, every turn is a process that has done nothing yet, and puts what it works
  on elsewhere: what was done before, and where memory happens to lie, make a difference too. (`rows_cpu_16mi` and
  `rows_cpu_16threads` are older: eight turns a process.) With `--plain` nothing of that is done: processes are as they
  are started, with the allocator as it comes, which is what a user sees.
- *torch / subgrad*: above 1, subgrad is the faster one. Each turn of one is held against the turn of the other beside
  it, and the median of that is shown: a shared machine can be slow for half of the time, and the median of one
  contender then falls on the fast half, that of another on the slow one. Records that are older than this (of the H200,
  `rows_cpu_64ki_again`, and the two above) have the quotient of medians.
- *torch, again*: torch in a second process, in which all is equal. *torch / torch, again* is how far apart equal things
  were measured there; what subgrad differs by less says nothing.
- *with* `subgrad build`: calls like earlier ones were answered in C++, without Python.
- *of the limit*: the time in which a copy of as many entries, measured in the same run, would move what has to move,
  over the time it took. Forward that is the operands, read, and the result, written: a copy, if there is one operand.
  Backward it is the cotangent, read, and a gradient for each operand, written; and the kept bits, where less than a
  byte an entry is kept. At small sizes all is overhead. More than 100% is what fits in a cache, and `abs`, whose second
  bits are read only where there are any. Selections (`amax`, `sort`, ...) do not move whole tensors: no limit is given
  for them.
- *kept*: bytes for each entry of one operand, held from forward to backward; the result itself is not counted, inputs
  that the graph holds are.
- What overwrites its input (`relu_`, ...) is given a copy to overwrite, in every column alike.
- A row that fails in some dtype on some device is left out there.
- Networks: a whole training step, and the most memory it held at once beyond what was there before it.
"""
RECORD = """# {name}

{machine}, torch {torch}; [how to read it](index.md#how-to-read-it).

```sh
{command}
```

{tables}
"""
OWNERS = ("torch", "min-norm")
Record = dict[str, Any]


def stored(folder: Path = RECORDS) -> dict[str, Record]:
    """The records by name."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}


def pages(records: dict[str, Record]) -> dict[str, str]:
    """The pages in markdown, by the names of their files."""
    listed = ([f"[{name}]({name}.md)", each["machine"], each["torch"]] for name, each in records.items())
    index = INDEX.format(records=markdown(["record", "machine", "torch"], listed, numbers=False))
    return {"index.md": index, **{f"{name}.md": page(name, each) for name, each in records.items()}}


def page(name: str, record: Record) -> str:
    """One record as a page."""
    if "summary" in record:
        tables = zoo(record)
    elif "training" in record:
        tables = quantised(record)
    elif "steps" in record:
        tables = networks(record)
    elif "programs" in record:
        tables = small_steps(record)
    elif "audits" in record:
        tables = audits(record["audits"])
    elif "armed" in record:
        tables = armed(record["armed"])
    elif "costs" in record:
        tables = costs(record["costs"])
    elif "native" in record:
        tables = slowest_poolings(record)
    elif "limits" in record:
        tables = poolings(record["rows"])
    elif "rows" in record:
        tables = models_of_others(record["rows"])
    else:
        tables = rows(Benchmark.from_json(record))
    return RECORD.format(name=name, tables=tables, **{key: record[key] for key in ("machine", "torch", "command")})


def zoo(record: Record) -> str:
    """Training steps of torchvision's models: ratios to torch's own, of time and of the peak of memory."""
    found: dict[str, dict[str, Record]] = {}
    for step in record["steps"]:
        found.setdefault(step["model"], {})[f"{step['convention']} {step['front']}".strip()] = step
    contenders = [each for each in next(iter(found.values())) if each != "torch"]
    columns = ["model", "torch, ms", *(f"time: {each}" for each in contenders)]
    times = (
        [
            model,
            milliseconds(by["torch"]["milliseconds"]),
            *(f"{by[each]['milliseconds ratio']:.2f}" for each in contenders),
        ]
        for model, by in found.items()
    )
    means = ["*geometric mean*", "", *(f"{each['geometric mean']:.3f}" for each in record["summary"])]
    of_memory = [each for each in contenders if not each.startswith("torch again")]
    peaks = (
        [model, gibibytes(by["torch"]["peak bytes"]), *(f"{by[each]['peak bytes ratio']:.3f}" for each in of_memory)]
        for model, by in found.items()
    )
    return (
        f"Batches of {record['batch']} at {record['pixels']} pixels, {record['dtype']}, channels last, "
        f"{'compiled' if record.get('compiled') else 'eager'}; ratios to torch's step, the mean of two processes. What "
        "differs from 1 by less than *torch again*, the second one, says nothing.\n\n"
        f"{markdown(columns, (*times, means))}\n\n"
        f"{markdown(['model', 'torch, peak GiB', *(f'peak: {each}' for each in of_memory)], peaks)}"
    )


def small_steps(record: Record) -> str:
    """Steps that are bound by Python: ratios to torch's own."""
    contenders = list(record["programs"][0]["ratios"])
    rows = (
        [each["program"], f"{each['torch microseconds']:.1f}", *(f"{each['ratios'][one]:.2f}" for one in contenders)]
        for each in record["programs"]
    )
    table = markdown(["program", "torch, us", *contenders], rows)
    return f"Convention `{record['convention']}`; ratios to torch.\n\n{table}"


def quantised(record: Record) -> str:
    """Training steps of a fake-quantised network, and activations one by one."""
    torchs = {each["dtype"]: each for each in record["training"] if each["variant"] == "torch"}
    steps = (
        [
            each["variant"],
            each["dtype"].removeprefix("torch."),
            milliseconds(each["milliseconds"]),
            f"{each['milliseconds'] / torchs[each['dtype']]['milliseconds']:.2f}",
            gibibytes(each["peak bytes"]),
            f"{each['peak bytes'] / torchs[each['dtype']]['peak bytes']:.3f}",
        ]
        for each in record["training"]
    )
    single = (
        [each["function"], each["device"], each["dtype"].removeprefix("torch."), milliseconds(each["milliseconds"])]
        for each in record["activations"]
    )
    return (
        f"Torchvision's mobilenet_v2 with fake quantisation of 8 bits, batches of {record['batch']} at "
        f"{record['pixels']} pixels: one training step, eager.\n\n"
        f"{markdown(['fake quantisation', 'dtype', 'step, ms', 'time', 'peak, GiB', 'peak'], steps)}\n\n"
        "Forward and backward of single functions.\n\n"
        f"{markdown(['function', 'device', 'dtype', 'ms'], single)}"
    )


def models_of_others(measured: Sequence[Record]) -> str:
    """What `subgrad.grad` and `subgrad.audit` cost with torchvision's models."""
    columns = ["model", "what", "operators that meet a kink", "plain, ms", "time"]
    rows = (
        [
            each["model"],
            each["what"],
            str(each.get("kinks", NONE)),
            milliseconds(each["plain ms"]),
            times(each["ratio"]),
        ]
        for each in measured
    )
    return markdown(columns, rows)


def slowest_poolings(record: Record) -> str:
    """Of many calls the ten that are slowest against torch's own, forward and backward together."""
    found = sorted(record["rows"], key=lambda each: -each["ratios"][2])
    mean = geometric_mean([each["ratios"][2] for each in found])
    part, most = "With" if record["native"] else "Without", found[0]["ratios"][2]
    return (
        f"{part} the C++ part, {len(found)} calls. Forward and backward together take {mean:.2f} times as long as "
        f"torch's in the geometric mean, and {most:.2f} times at most; the ten slowest:\n\n{poolings(found[:10])}"
    )


def poolings(measured: Sequence[Record]) -> str:
    """Max-pooling under `min-norm`, which shares ties, and torch's own."""
    columns = ["call", "input", "ties", *(f"{part}, ms: {of}" for part in ("forward", "backward") for of in OWNERS)]
    rows = (
        [
            f"`{each['call']}`",
            f"{'x'.join(map(str, each['shape']))} {each['dtype'][6:]}{', channels last' * each['channels last']}",
            each["ties"],
            *(milliseconds(each[of][part]) for part in range(2) for of in OWNERS),
            *(f"{1 / each['ratios'][part]:.2f}" for part in range(2)),
        ]
        for each in measured
    )
    return markdown([*columns, "torch / min-norm: forward", "backward"], rows)


def times(ratio: float) -> str:
    return f"{ratio:.2f} times"


def armed(measured: Sequence[Record]) -> str:
    """What it costs to be armed against NaN where there is none, beside plain training steps."""
    columns = ["model", "plain, ms", "armed, ms", "time", "plain, again", "limit", "`detect_anomaly`"]
    rows = (
        [
            each["model"],
            *(milliseconds(each[name]) for name in ("plain_ms", "armed_ms")),
            *(f"{each[name]:.2f}" for name in ("armed", "again", "limit", "anomaly")),
        ]
        for each in measured
    )
    return markdown(columns, rows)


def costs(measured: Sequence[Record]) -> str:
    """What `subgrad.grad` costs beside `torch.func.grad`."""
    columns = [
        "network",
        "parameters",
        "kinks",
        "torch.func.grad, ms",
        "subgrad.grad, ms",
        "time",
        "first",
        "peak memory",
    ]
    rows = (
        [
            each["model"],
            f"{each['parameters']:,}",
            "some" if each["hit"] else "none",
            milliseconds(each["plain_ms"]),
            milliseconds(each["subgrad_ms"]),
            times(each["time"]),
            times(each["first"]) if "first" in each else NONE,
            times(each["memory"]) if each["memory"] else NONE,
        ]
        for each in measured
    )
    return markdown(columns, rows)


def audits(measured: Sequence[Record]) -> str:
    """What `subgrad.audit` costs beside plain training steps of ResNet-18."""
    columns = ["audit", "plain step, ms", "audited step, ms", "recorded step, ms", "others, ms", "time", "peak memory"]
    rows = (
        [
            each["audit"],
            *(milliseconds(each[name]) for name in ("plain_ms", "audited_ms", "recorded_ms", "other_ms")),
            times(each["time"]),
            f"{each['memory']:.3f} times" if each["memory"] else NONE,
        ]
        for each in measured
    )
    return f"One step of {measured[0]['every']} is recorded, or compared.\n\n{markdown(columns, rows)}"


def networks(record: Record) -> str:
    """One line for each network: the time and the peak of a training step."""
    found: dict[str, dict[str, Record]] = {}
    for step in record["steps"]:
        found.setdefault(step["network"], {})[step["convention"]] = step
    conventions = list(dict.fromkeys(step["convention"] for step in record["steps"]))
    ours = [each for each in conventions if each != "torch"]
    columns = [
        "network",
        *(f"step, ms: {each}" for each in conventions),
        *(f"torch / {each}" for each in ours),
        *(f"peak, GiB: {each}" for each in conventions),
    ]
    measured = (
        [
            network,
            *(milliseconds(by[each]["milliseconds"]) for each in conventions),
            *(ratio(by["torch"]["milliseconds"] / by[each]["milliseconds"]) for each in ours),
            *(gibibytes(by[each]["peak bytes"]) for each in conventions),
        ]
        for network, by in found.items()
    )
    tables = f"Batches of {record['batch']}, {record['dtype']}.\n\n{markdown(columns, measured)}"
    return tables + thresholds(record.get("thresholds", ()))


def thresholds(swept: Sequence[Record]) -> str:
    """From which size on masks are packed."""
    if not swept:
        return ""
    columns = ["masks packed from", "step, ms", "peak, GiB"]
    measured = (
        [f"{each['smallest packed']:,}", milliseconds(each["milliseconds"]), gibibytes(each["peak bytes"])]
        for each in swept
    )
    return f"\n\nThe size from which on masks are packed, {swept[0]['network']}.\n\n{markdown(columns, measured)}"


def gibibytes(size: int) -> str:
    return f"{size / 2**30:.2f}" if size else NONE  # of a CPU it is not measured


def rows(record: Benchmark) -> str:
    """A table for each dtype and size."""
    tables = (f"## {size:,} entries, {dtype}\n\n{table(lines(record, dtype, size))}" for dtype, size in groups(record))
    return "\n\n".join((f"Convention `{record.convention}`, {front(record)}.", *tables))


def table(measured: Sequence[Line]) -> str:
    """One line for each row: the times of all, then what follows from them."""
    contenders = list(dict.fromkeys(line.timing.contender for line in measured))
    ours = [each for each in contenders if each.startswith("subgrad")]
    held = [each for each in contenders if each in RIVALS]
    columns = [
        "row",
        *(f"both, ms: {each}" for each in contenders),
        *(f"torch / {each}" for each in held),
        *(f"backward, ms: {each}" for each in contenders),
        *(f"forward, of the limit: {each}" for each in ours if "compiled" not in each),
        *(f"backward, of the limit: {each}" for each in ours if "compiled" not in each),
        *(f"kept: {each}" for each in contenders),
    ]
    found: dict[str, dict[str, Line]] = {}
    for line in measured:
        found.setdefault(line.timing.row, {})[line.timing.contender] = line
    return markdown(columns, (cells(name, by, contenders, held, ours) for name, by in found.items()))


def cells(
    name: str, by: dict[str, Line], contenders: Sequence[str], held: Sequence[str], ours: Sequence[str]
) -> list[str]:
    def each(said: Callable[[Line], str], of: Sequence[str] = contenders) -> list[str]:
        return [said(by[contender]) if contender in by else NONE for contender in of]

    return [
        f"`{name}`",
        *each(lambda line: milliseconds(line.timing.both)),
        *each(lambda line: ratio(line.ratio), held),
        *each(lambda line: milliseconds(line.timing.backward)),
        *each(lambda line: share(line.forward_share), [name for name in ours if "compiled" not in name]),
        *each(lambda line: share(line.backward_share), [name for name in ours if "compiled" not in name]),
        *each(lambda line: f"{line.kept:.3g}"),
    ]


def markdown(columns: Sequence[str], cells: Iterable[Sequence[str]], numbers: bool = True) -> str:
    """A table, with the columns after the first to the right if they are numbers."""
    rule = ["---", *["--:" if numbers else "---"] * (len(columns) - 1)]
    return "\n".join(f"| {' | '.join(line)} |" for line in (columns, rule, *cells))


def main() -> int:
    made = pages(stored())
    PAGES.mkdir(exist_ok=True)
    for old in {path.name for path in PAGES.glob("*.md")} - set(made):
        (PAGES / old).unlink()
    for name, text in made.items():
        (PAGES / name).write_text(text)
    print(f"{PAGES.relative_to(ROOT)}: {len(made) - 1} records")
    return 0


if __name__ == "__main__":
    sys.exit(main())
