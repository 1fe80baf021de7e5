"""Which rules programs have run, and which of them have met a kink: counted as the passes call them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

from subgrad.clarke.engine.passes import Look
from subgrad.clarke.engine.rule import Rule
from subgrad.clarke.rules.rule_table import rules

# Rules of calls that no program on a CPU makes, or whose only answer is a refusal.
ELSEWHERE = {
    "_cudnn_rnn_flatten_weight": "on GPUs",
    "_thnn_fused_lstm_cell": "on GPUs",
    "_thnn_fused_gru_cell": "on GPUs",
    "_embedding_bag_forward_only": "called where only the weights of samples are differentiated, see test_groups",
    "linalg_eig": "refused where values repeat, see test_spectra_vectors",
    "fake_quantize_per_tensor_affine_cachemask": "refused wherever it is met",
    "fake_quantize_per_channel_affine_cachemask": "refused wherever it is met",
    "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams": "refused wherever it is met",
    "_fused_moving_avg_obs_fq_helper": "refused wherever it is met",
    "_fake_quantize_learnable_per_tensor_affine": "refused wherever it is met",
}


def wanted() -> list[str]:
    return [op for op in rules() if op not in ELSEWHERE]


@contextmanager
def counted(run: Counter[str], decided: Counter[str]) -> Iterator[None]:
    """Count the operators whose rules are run on something differentiated, and those that meet a kink."""
    classes = [Look, *_below(Rule)]
    kept = [(each, name, vars(each)[name]) for each in classes for name in ("run", "decide") if name in vars(each)]
    for each, name, method in kept:
        setattr(each, name, _noting(method, run if each is Look else decided))
    try:
        yield
    finally:
        for each, name, method in kept:
            setattr(each, name, method)


def _below(kind: type) -> list[type]:
    return [each for child in kind.__subclasses__() for each in (child, *_below(child))]


def _noting(method: Callable[..., Any], counts: Counter[str]) -> Callable[..., Any]:
    @wraps(method)
    def noting(*arguments: Any, **keywords: Any) -> Any:
        for each in (*arguments, *keywords.values()):
            op = getattr(getattr(each, "op", None), "op", None)
            if isinstance(op, str):
                counts[op] += 1
                break
        return method(*arguments, **keywords)

    # Refusals name the line of the program, which is the nearest one outside of the package: not this one.
    inner = vars(noting).pop("__wrapped__")
    noting.__code__ = noting.__code__.replace(co_filename=inner.__code__.co_filename)
    return noting
