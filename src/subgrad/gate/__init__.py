"""The gate: what an audit found, judged: the lines on which gradients depend, held against those that are known."""

from subgrad.gate.baseline import Baseline
from subgrad.gate.findings import Finding
from subgrad.gate.not_finite import looked_at
from subgrad.gate.verdict import Gate, Verdict

__all__ = ["Baseline", "Finding", "Gate", "Verdict", "looked_at"]
