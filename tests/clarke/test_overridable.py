"""Nothing is left out: every function of torch that can be overridden is called in a plain run, and is one of four.

It is handled, or harmless; or its result is differentiated; or it is noted as a cut, which these tests name. Names and
samples are torch's own, so that what a new version adds makes a test fail here, and is noted as a cut there.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from clarke.overridable import calls, functions
from subgrad.apply.current_pass import running
from subgrad.clarke import Refused
from subgrad.clarke.engine import function_mode, program
from subgrad.clarke.engine.passes import Look
from subgrad.clarke.functions.cut_derivatives import name_of, reaches
from subgrad.clarke.functions.not_differentiated import HARMLESS, ONE_BY_ONE, is_harmless

# Functions that return numbers which are not differentiated, sometimes or always: noted, and held against values.
CUTTING = {
    "lobpcg": "searches without derivatives inside",
    "where": "indices, if only a condition is given",
    "nonzero_static": "indices",
    "multinomial": "indices",
    "matrix_rank": "a count",
    "quantize_per_tensor": "quantised numbers",
    "quantize_per_tensor_dynamic": "quantised numbers",
    "native_batch_norm": "statistics beside the result",
    "native_layer_norm": "statistics beside the result",
    "lstsq": "singular values beside the result",
    "lu": "a permutation beside the factors",
    "lu_unpack": "a permutation beside the factors",
    "hinge_embedding_loss": "nothing of what has no target",
    "resize_as_": "memory that is given anew",
}
# Functions that are not called here, and why.
NOT_CALLED = {
    "change how others are called": """
        _autocast_to_full_precision _autocast_to_reduced_precision autocast
    """,
    "are about symbols, not tensors": """
        sym_ite sym_max sym_min sym_sqrt
    """,
    "take integers, or truth values": """
        __and__ __iand__ __ilshift__ __index__ __invert__ __ior__ __irshift__ __ixor__ __lshift__ __or__
        __rand__ __rlshift__ __ror__ __rrshift__ __rshift__ __rxor__ __xor__ bitwise_and bitwise_and_
        bitwise_left_shift bitwise_left_shift_ bitwise_not bitwise_not_ bitwise_or bitwise_or_
        bitwise_right_shift bitwise_right_shift_ bitwise_xor bitwise_xor_ gcd gcd_ lcm lcm_ one_hot
        unravel_index
    """,
    "need another device": """
        __cuda_array_interface__ batch_norm_backward_elemt batch_norm_backward_reduce batch_norm_elemt
        batch_norm_gather_stats batch_norm_gather_stats_with_counts batch_norm_stats batch_norm_update_stats
        cuda ipu miopen_batch_norm miopen_convolution miopen_convolution_add_relu miopen_convolution_relu
        miopen_convolution_transpose miopen_depthwise_convolution miopen_rnn mtia pin_memory record_stream
        to_mkldnn xpu
    """,
    "are about sparse tensors": """
        _coalesced_ _dimI _dimV _indices _nnz _sparse_mask_projection _to_dense _values ccol_indices
        ccol_indices_copy coalesce col_indices col_indices_copy crow_indices crow_indices_copy
        hspmm indices indices_copy is_coalesced resize_as_sparse_
        row_indices row_indices_copy smm sparse_mask sparse_resize_ sparse_resize_and_clear_ sspaddmm values
        values_copy
    """,
    "are about quantised or nested tensors": """
        _nested_tensor_size _nested_tensor_storage_offsets _nested_tensor_strides choose_qparams_optimized
        fake_quantize_per_channel_affine fbgemm_linear_fp16_weight fbgemm_linear_fp16_weight_fp32_activation
        fbgemm_linear_int8_weight fbgemm_linear_int8_weight_fp32_activation fbgemm_linear_quantize_weight
        fbgemm_pack_gemm_matrix_fp16 fbgemm_pack_quantized_matrix fused_moving_avg_obs_fake_quant int_repr
        q_per_channel_axis q_per_channel_scales q_per_channel_zero_points q_scale q_zero_point qscheme
        quantize_per_channel quantized_batch_norm quantized_gru_cell quantized_lstm_cell
        quantized_max_pool1d quantized_max_pool2d quantized_max_pool3d quantized_rnn_relu_cell
        quantized_rnn_tanh_cell
    """,
    "need more arguments than are guessed": """
        fractional_max_pool3d fractional_max_pool3d_with_indices istft multi_head_attention_forward
        native_channel_shuffle native_group_norm native_norm view_as_complex_copy
    """,
    "torch itself refuses for what is differentiated": """
        __array__ __array_wrap__ __deepcopy__ __dlpack__ __setstate__ _has_grad_dtype_override apply_ grad_dtype
        map2_ map_ numpy register_post_accumulate_grad_hook resize resize_
    """,
    "are about names of dimensions, which older versions have": """
        _update_names align_as
    """,
}

pytestmark = pytest.mark.filterwarnings("ignore")  # calls by guess meet what torch advises against


@pytest.fixture(autouse=True, scope="module")
def prepared() -> None:
    program._prepare()


@cache
def plain_runs(name: str) -> tuple[tuple[Look, Any, str], ...]:
    """The plain run of each call that is given something differentiated: what it noted, the result, a refusal."""
    found = []
    for func, args, kwargs in calls(functions()[name]):
        if not reaches(args, kwargs):
            continue
        current, out, refusal = Look(0.0), None, ""
        try:
            with running(current), function_mode.Watch(current):
                out = func(*args, **kwargs)
        except Refused as error:
            refusal = str(error)
        found.append((current, out, refusal))
    return tuple(found)


def kind(func: Any) -> str:
    if function_mode._learned(func) is not None:
        return "handled"
    return "harmless" if is_harmless(name_of(func)) else "other"


def of_kind(wanted: str) -> list[str]:
    return [name for name, func in functions().items() if kind(func) == wanted]


def last(name: str) -> str:
    return name.removesuffix(".__get__").rpartition(".")[2]


def why_not_called(name: str) -> str | None:
    return next((why for why, names in NOT_CALLED.items() if last(name) in names.split()), None)


def test_functions_are_handled_or_harmless_or_neither() -> None:
    assert not HARMLESS & function_mode.HANDLERS.keys()
    assert not set(ONE_BY_ONE) & (HARMLESS | function_mode.HANDLERS.keys())


def test_every_name_is_that_of_a_function_of_torch() -> None:
    homes = (torch, Tensor, torch.nn.functional, torch.ops.aten, torch.ops.higher_order)
    names = {name.removesuffix("=") for name in (*function_mode.HANDLERS, *HARMLESS, *ONE_BY_ONE)}
    assert {name for name in names if not any(hasattr(home, name) for home in homes)} <= NOT_IN_EVERY_VERSION


NOT_IN_EVERY_VERSION = {"hash_tensor", "const_data_ptr", "grad_dtype", "_has_grad_dtype_override", "has_names"}


@pytest.mark.parametrize("name", functions())
def test_every_function_is_called_or_it_is_said_why_not(name: str) -> None:
    assert why_not_called(name) or any(True for _ in calls(functions()[name]))


@pytest.mark.parametrize("name", of_kind("other"))
def test_results_of_what_is_differentiated_are_or_their_cut_is_noted(name: str) -> None:
    for current, out, refusal in plain_runs(name):
        numbers = [each for each in tree_leaves(out) if isinstance(each, Tensor | bool | int | float)]
        is_cut = bool(numbers) and not any(isinstance(each, Tensor) and each.requires_grad for each in numbers)
        assert not is_cut or current.leaks or refusal
        assert not current.leaks or last(name) in CUTTING


@pytest.mark.parametrize("name", of_kind("handled"))
def test_handled_functions_are_refused_or_noted_or_have_a_result_that_is_decided(name: str) -> None:
    """Numbers that could be differentiated are, unless the call is refused or noted; answers come from rules."""
    for current, out, refusal in plain_runs(name):
        numbers = [each for each in tree_leaves(out) if isinstance(each, Tensor)]
        real = [each for each in numbers if each.is_floating_point() or each.is_complex()]
        answers = [each for each in numbers if not each.is_floating_point() and not each.is_complex()]
        assert all(each.requires_grad for each in real) or current.leaks or refusal or last(name) in CONSTANT
        decides = answers or isinstance(out, bool | int | float | complex)
        assert (
            not decides or current.sites or current.leaks or current.reads or refusal or last(name) in DIFFERS_AT_ONCE
        )


CONSTANT = ("full_like", "new_full", "type_as")  # of the shape or the type of what is differentiated
DIFFERS_AT_ONCE = ("equal",)  # by its shape


ANSWERS = ("gt", "ge", "lt", "le", "eq", "ne", "greater", "greater_equal", "less", "less_equal", "not_equal", "isclose")
ANSWERS += ("__gt__", "__ge__", "__lt__", "__le__", "__eq__", "__ne__", "logical_and", "logical_or", "logical_xor")
OF_ONE = ("logical_not", "signbit", "any", "all", "count_nonzero", "argmax", "argmin", "argsort", "nonzero", "argwhere")


@pytest.mark.parametrize("name", [name for name in of_kind("harmless") if last(name) in (*ANSWERS, *OF_ONE)])
def test_answers_and_indices_are_those_of_rules_that_see_their_ties(name: str) -> None:
    tied = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    current = Look(0.0)
    with running(current), function_mode.Watch(current):
        functions()[name](tied, *([torch.zeros(3, dtype=torch.float64)] if last(name) in ANSWERS else []))
    assert any(current.flags())


ABOUT_SIZE = ("isnan", "isinf", "isfinite", "isposinf", "isneginf")  # which no number changes a little further on


@pytest.mark.parametrize("name", [name for name in of_kind("harmless") if last(name) not in (*ANSWERS, *OF_ONE)])
def test_what_is_harmless_besides_does_not_depend_on_values(name: str) -> None:
    for func, args, kwargs in calls(functions()[name]):
        moved = tree_map(
            lambda each: each * 3 + 1 if isinstance(each, Tensor) and each.is_floating_point() else each, args
        )
        one, other = (func(*given, **kwargs) for given in (args, moved))
        if isinstance(one, Tensor):
            assert not one.requires_grad
            assert one.shape == other.shape
            assert last(name) in (*SHAPED_AS, *ABOUT_SIZE, "isreal", "grad", "_grad", "_base") or torch.equal(
                one, other
            )
        elif last(name) not in IDENTITIES:
            assert type(one) is type(other)
            assert not isinstance(one, bool | int | float | str | tuple) or one == other


SHAPED_AS = ("zeros_like", "ones_like", "empty_like", "rand_like", "randn_like", "randint_like")
IDENTITIES = (
    "_cdata",
    "grad_fn",
    "_grad_fn",
    "__hash__",
    "name",
    "is_leaf",
    "_version",
    "is_set_to",
    "_is_view",
    "_base",
)


def test_a_function_that_nobody_knows_is_noted_where_it_cuts() -> None:
    """As one that a new version of torch may have."""

    def unheard_of(x: Tensor) -> Any:
        if torch.overrides.has_torch_function_unary(x):
            return torch.overrides.handle_torch_function(unheard_of, (x,), x)
        return (x.detach() * 2, [x.detach().sum().item()], {"x": 1})[:2]

    current = Look(0.0)
    with running(current), function_mode.Watch(current):
        unheard_of(torch.ones(2, requires_grad=True))
    assert [leak.rpartition(":")[0] for leak in current.leaks] == [f"unheard_of at {__file__}"]
