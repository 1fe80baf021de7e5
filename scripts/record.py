"""Record what the real torch 2.13 and 2.14 return for every sample of every row, to the bit."""

from __future__ import annotations

from environments import ROOT, run

RECORDED = {"torch-2.13": "2.13.0", "torch-2.14": "2.14.1"}

for convention, version in RECORDED.items():
    target = ROOT / "tests" / "recorded" / f"{convention}.json"
    target.parent.mkdir(exist_ok=True)
    target.write_text(run(version, ROOT / "tests" / "recording.py"))
    print(f"{target.relative_to(ROOT)}: as torch {version} returns it")
