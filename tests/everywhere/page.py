"""`docs/everywhere.md`: the matrix written down, and read again by the tests."""

from __future__ import annotations

from pathlib import Path

import torch

from everywhere.capabilities import CAPABILITIES
from everywhere.families import FAMILIES
from everywhere.matrix import CONVENTIONS, PASS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "everywhere.md"
MARK = "<!-- matrix -->"
Outcomes = dict[tuple[str, str], dict[str, str]]


TEXT = """# Everywhere PyTorch differentiates

Written by `make everywhere` (`scripts/everywhere.py`), torch {version}. Small programs that land on kinks, one for each
family of rows, are differentiated in every way that PyTorch has, under each of {conventions} conventions. *yes*: the
gradients are those of eager code under that convention, which the other tests hold against the table, for every one of
them. CI runs the matrix again on the oldest and the newest torch, what is compiled under one of the conventions.

{mark}
{matrix}
{mark}

*refused*: an error that says so. *torch itself*: plain torch raises too. `hypot` at 0 is nan in torch, and not compared
where a convention leaves it to torch. Compiled cells trace with AOTAutograd, where conventions enter a graph;
`{inductor}` goes through Inductor.

## What to know

- **Compiled functions** are compiled once for each convention they are called under, and never serve the gradient of
  another: a guard on each graph, a tag on each entry of the on-disk caches. Graphs without kinks are not affected.
  Torch's own limit of recompilations (8) counts them too.
- **`use` inside a compiled function** is part of its graph. It needs a backend that compiles gradients (all but
  `backend="eager"`); it is refused together with `torch.compiler.nested_compile_region`, whose regions are compiled
  once for all, and where DDP's optimizer splits a graph inside the `with`.
- **`torch.export`**: an exported program holds plain operators and takes the convention in force where it *runs*; one
  warning says so if modules, calls or `use` inside it chose another. ONNX files and AOTInductor packages have no
  gradient to choose. `docs/bounded.md` has more.
- **`torch.fx`** records what `subgrad.functional` and `subgrad.nn` spell out as one call, with its convention, and so
  calls inside `use`; one warning names what cannot be kept. What `make_fx`, `torch.jit.trace` and `torch.jit.script`
  record takes the convention in force where it runs, and one warning says so.
- **`torch.utils.checkpoint`**: what is recomputed in backward sees the convention of its forward.
- **TorchScript** differentiates by formulas of its own once it has optimised a graph. The first `use` switches that
  optimiser off for the process.
- **Jagged tensors**: entry by entry through their values; writing into them is refused. Sparse, mkldnn and strided
  nested tensors are refused wherever the convention's element is not torch's own.
- **Threads and tasks** each have their own convention; a thread starts with the process default, a task with its
  creator's. Forked workers of a `DataLoader` inherit what was in force; spawned ones start with torch's own:
  `worker_init_fn` can call `subgrad.set_default`.
- **CUDA**: every cell again on an H200 with torch 2.11 (`pytest -m gpu`), and Inductor with and without CUDA graphs
  (`mode="reduce-overhead"`), graphs captured by hand, backward on autograd's own thread. Ties of selections that a
  convention leaves to torch: its devices, and Inductor, take different entries. NCCL was not tried.
- **DDP, FSDP2 (`fully_shard`), tensor parallel, DTensors and pipelines** give the gradients of one process under every
  convention, to the bit: `tests/distributed`, two processes with gloo. Operators for which DTensor has no sharding rule
  raise torch's own error. `torchrun -m subgrad run train.py` works.

## What it costs operators without a kink

Nothing: no kernel of ours is in their way. Medians, by turns in one process.

{overhead}
"""


def page(outcomes: Outcomes, overhead: str) -> str:
    return TEXT.format(
        version=torch.__version__,
        conventions=len(CONVENTIONS),
        mark=MARK,
        matrix=matrix(outcomes),
        inductor="torch.compile(fullgraph=True)",
        overhead=overhead,
    )


def matrix(outcomes: Outcomes) -> str:
    """A row for each capability, a column for each family; conventions are named where they differ."""
    lines = [f"| | {' | '.join(FAMILIES)} |", f"|---{'|---' * len(FAMILIES)}|"]
    for capability in CAPABILITIES:
        cells = [_cell({name: outcomes[capability, name][family] for name in CONVENTIONS}) for family in FAMILIES]
        lines.append(f"| {capability} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(by_convention: dict[str, str]) -> str:
    """One word where all conventions agree, else each outcome with its conventions."""
    words = sorted(set(by_convention.values()), key=lambda word: (word != PASS, word))
    if len(words) == 1:
        return words[0]
    return "; ".join(f"{word}: {', '.join(n for n, found in by_convention.items() if found == word)}" for word in words)


def is_the_torch_of_the_page() -> bool:
    major_and_minor = ".".join(torch.__version__.split(".")[:2])
    return f"torch {major_and_minor}." in PAGE.read_text()


def read_outcomes() -> Outcomes:
    rows = PAGE.read_text().partition(MARK)[2].partition(MARK)[0].strip().splitlines()[2:]
    outcomes: Outcomes = {}
    for row in rows:
        capability, *cells = (cell.strip() for cell in row.strip("|").split("|"))
        for family, cell in zip(FAMILIES, cells, strict=True):
            for convention, word in _read_cell(cell).items():
                outcomes.setdefault((capability, convention), {})[family] = word
    return outcomes


def _read_cell(cell: str) -> dict[str, str]:
    if ": " not in cell or (cell.startswith("torch itself: ") and "; " not in cell):
        return dict.fromkeys(CONVENTIONS, cell)
    found = {}
    for part in cell.split("; "):
        word, _, names = part.rpartition(": ")
        found |= {name: word for name in CONVENTIONS if name in _names(names)}
    return found


def _names(text: str) -> list[str]:
    own = [name for name in CONVENTIONS if name.startswith("Convention") and name in text]
    for name in own:
        text = text.replace(name, "")
    return [*own, *(each.strip() for each in text.split(","))]
