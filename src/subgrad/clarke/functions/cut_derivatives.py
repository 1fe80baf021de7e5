"""Calls of a program that cut derivatives: `detach`, numbers that Python reads, copies behind torch's back.

In the tangent pass a detached tensor keeps its tangent, which is that of the program's value. If the program's gradient
ignores it and that matters, as in straight-through tricks, the certificate fails. What cannot be followed is refused.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from subgrad.clarke.engine import rule
from subgrad.clarke.engine.duals import dual, tangent, values, with_tangent
from subgrad.clarke.engine.errors import Refused, here
from subgrad.clarke.engine.passes import Decide, Look, Replay
from subgrad.torch_internals.transforms import get_unwrapped, is_functorch_wrapped_tensor

# How a call is made in a pass: given the pass, the function and its arguments.
Handler = Callable[[Any, Any, Any, Any], Any]


def name_of(func: Any) -> str:
    """The name of a function of torch; that of an attribute for what gets it, ``NAME=`` for what sets it."""
    name = getattr(func, "__name__", "").partition(".")[0]  # operators are named with their overload
    if name not in ("__get__", "__set__"):
        return name
    attribute = getattr(func, "__self__", None)
    attribute = getattr(attribute, "fget", None) or attribute
    return getattr(attribute, "__name__", "attribute") + ("=" if name == "__set__" else "")


def is_differentiated(argument: Any) -> bool:
    """Whether an argument depends on what the program is differentiated in; also inside `torch.func` transforms."""
    if isinstance(argument, Tensor):
        while is_functorch_wrapped_tensor(argument):
            argument = get_unwrapped(argument)
        return rule.is_differentiated(argument)
    return isinstance(argument, list | tuple) and any(map(is_differentiated, argument))


def reaches(args: Any, kwargs: Any) -> bool:
    """Whether something differentiated is among the arguments of a call."""
    return any(map(is_differentiated, args)) or (bool(kwargs) and any(map(is_differentiated, kwargs.values())))


def moving(x: Tensor, func: Any) -> Tensor | None:
    """The tangent of what a call cuts off."""
    if is_functorch_wrapped_tensor(x):
        refuse(func, "cuts derivatives inside a torch.func transform, where they cannot be followed.")
    return tangent(x)


def note_a_cut(current: Any, name: str) -> None:
    if isinstance(current, Look | Decide):
        current.leaks.note(name)


def note_another_way(current: Any) -> None:
    """The call is made in another way than the program says, and has to be in the replay as well."""
    if isinstance(current, Look | Decide):
        current.is_watched = True


def note_reading(current: Any) -> None:
    """Python may branch by what it is told."""
    if isinstance(current, Decide):
        current.is_read = True


def detached(current: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """`detach`, `data`: the value, and in the tangent pass its tangent as well."""
    x, name = _first(args, kwargs), name_of(func)
    if not is_differentiated(x):
        if name == "data" and isinstance(x, Tensor) and x.is_floating_point():
            note_a_cut(current, name)  # what is written there later is not seen
        return func(*args, **kwargs)
    note_another_way(current)
    note_a_cut(current, name)
    moved = moving(x, func)
    out = x.detach().clone() if name in ("detach_copy", "__deepcopy__") else func(*args, **kwargs)
    if name == "__deepcopy__":
        out.requires_grad_(x.requires_grad)
    return out if moved is None else with_tangent(out, moved.clone())


def replaced(current: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """``x.data = y``; modules write `module.to(dtype)` so, also where there is nothing to convert."""
    if reaches(args, kwargs):
        note_another_way(current)
        if _is_same_memory(*args):
            return None
        if not _is_converted(*args):
            _refuse_replacing(func)
    current.keep(args[0], its_memory=True)
    return func(*args, **kwargs)


def _is_converted(one: Tensor, other: Tensor) -> bool:
    """Whether a parameter gets its own numbers in another type."""
    if not one.is_leaf or other.requires_grad or is_functorch_wrapped_tensor(one) or one.shape != other.shape:
        return False
    if tangent(one) is not None or tangent(other) is not None or not one.layout == other.layout == torch.strided:
        return False
    with values():
        return torch.equal(one.detach().to(other), other)


def _refuse_replacing(func: Any) -> NoReturn:
    refuse(func, "puts other numbers in the place of a tensor's, where no derivative sees it. Use copy_.")


def _is_same_memory(one: Tensor, other: Tensor) -> bool:
    if one is other:
        return True
    if any(each.layout is not torch.strided or is_functorch_wrapped_tensor(each) for each in (one, other)):
        return False
    looks_so = (one.dtype, one.device, one.shape, one.stride()) == (
        other.dtype,
        other.device,
        other.shape,
        other.stride(),
    )
    return looks_so and one.data_ptr() == other.data_ptr()


def detached_in_place(current: Any, func: Any, args: Any, kwargs: Any) -> Any:
    x = _first(args, kwargs)
    if not is_differentiated(x):
        return func(*args, **kwargs)
    note_another_way(current)
    note_a_cut(current, name_of(func))
    moved = moving(x, func)
    out = func(*args, **kwargs)
    if moved is not None:
        with torch.no_grad():
            out.copy_(dual(out.detach(), moved.clone()))
    return out


def copied(current: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """`torch.tensor(x)` and `new_tensor(x)` detach; of a list they read numbers."""
    given = (*args[name_of(func) == "new_tensor" :], *kwargs.values())  # that only lends its type
    data = next((each for each in given if is_differentiated(each)), None)
    if data is None:
        return func(*args, **kwargs)
    if not isinstance(data, Tensor):
        refuse(func, "makes a tensor of numbers that it takes out of the program. Write torch.stack instead.")
    note_another_way(current)
    note_a_cut(current, name_of(func))
    moved, plain = moving(data, func), data.detach()
    out = func(
        *(plain if each is data else each for each in args),
        **{key: plain if each is data else each for key, each in kwargs.items()},
    )
    if not (out.is_floating_point() or out.is_complex()):
        return (torch.trunc(data) if out.dtype != torch.bool else data != 0).to(out)
    return out if moved is None else with_tangent(out, moved.clone())


def joined(current: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """`as_tensor` and `asarray` return what they are given, or read numbers out of a list."""
    if any(isinstance(each, list | tuple) and is_differentiated(each) for each in (*args, *kwargs.values())):
        refuse(func, "makes a tensor of numbers that it takes out of the program. Write torch.stack instead.")
    return func(*args, **kwargs)


def read(current: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """A number leaves the program: to be shown, or to come back as a constant, which the values tell."""
    if isinstance(current, Look) and reaches(args, kwargs):
        current.reads.note(f"{name_of(func)}()")
    note_reading(current)
    return func(*args, **kwargs)


def told(current: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """`in`: what it compares has rules, and Python reads the answer."""
    note_reading(current)
    return func(*args, **kwargs)


def refused(because: str, besides: int = 0) -> Handler:
    """A handler that refuses what is differentiated, but for the first arguments."""

    def handler(current: Any, func: Any, args: Any, kwargs: Any) -> Any:
        if reaches(args[besides:], {} if besides and not args else kwargs):
            refuse(func, because)
        return func(*args, **kwargs)

    return handler


def noted(current: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """What cuts derivatives inside, or what may: the certificate tells whether that matters."""
    if reaches(args, kwargs):
        note_a_cut(current, name_of(func))
    return func(*args, **kwargs)


def filled(current: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """Functions of `torch.nn.init`, which write under no_grad."""
    current.keep(args[0] if args else kwargs["tensor"])
    return noted(current, func, args, kwargs)


def kept_out(current: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """`requires_grad_(False)` on what is differentiated."""
    if not kwargs.get("requires_grad", args[1] if len(args) > 1 else True) and is_differentiated(args[0]):
        refuse(func, "keeps torch from differentiating by what the program is differentiated in.")
    return func(*args, **kwargs)


def gumbel_softmax(current: Any, func: Any, args: Any, kwargs: Any) -> Any:
    if kwargs.get("hard", len(args) > 2 and args[2]) and reaches(args, kwargs):
        raise Refused(f"gumbel_softmax(hard=True) at {here()}: its gradient is that of another function.")
    return func(*args, **kwargs)


def embedding(current: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """With ``max_norm`` rows are scaled where no derivative sees it, in the memory of the weight itself."""
    given = {**dict(zip(("input", "weight", "", "max_norm", "norm_type"), args, strict=False)), **kwargs}
    if given.get("max_norm") is None:
        return func(*args, **kwargs)
    if _has_long_rows(given["weight"], given["input"], given["max_norm"], given.get("norm_type", 2.0)):
        current.keep(given["weight"])
    return noted(current, func, args, kwargs)


def _has_long_rows(weight: Tensor, indices: Tensor, most: float, order: float) -> bool:
    """Whether some may be scaled: nearly long enough is long enough, since torch may round otherwise."""
    with values():
        rows = weight.detach()[indices.values() if indices.is_nested else indices]
        return bool((torch.linalg.vector_norm(rows.double(), order, dim=-1) > 0.99 * most).any())


def in_place_truth(current: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """`logical_not_` and the like overwrite numbers, and torch keeps the derivative of what was there."""
    if is_differentiated(_first(args, kwargs)):
        refuse(func, "overwrites numbers by answers, and torch keeps their derivative. Write it without the `_`.")
    return func(*args, **kwargs)


def seen_as_other_numbers(current: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """`view` with a type reads the bits of numbers as those of others."""
    if any(isinstance(each, torch.dtype) for each in (*args[1:], *kwargs.values())) and is_differentiated(args[0]):
        refuse(func, "reads the bits of numbers as those of others, which has no derivative.")
    return func(*args, **kwargs)


def made_sparse(current: Any, func: Any, args: Any, kwargs: Any) -> Any:
    x = _first(args, kwargs)
    if is_differentiated(x) and x.layout is torch.strided and bool((x.detach() == 0).any()):
        refuse(func, "drops entries that are 0, which they are not a little further on. Give it a mask of its own.")
    return func(*args, **kwargs)


def aligned(current: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """`ctc_loss`, whose gradient in torch holds for what comes from `log_softmax`, and for nothing else."""
    node = getattr(args[0] if args else kwargs["log_probs"], "grad_fn", None)
    while node is not None and node.name().startswith(_LAID_OUT):
        node = node.next_functions[0][0]
    if isinstance(current, Look) and (node is None or not node.name().startswith("LogSoftmax")):
        return noted(current, func, args, kwargs)
    return func(*args, **kwargs)


def hooked(current: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """Hooks on gradients, of which a run without a graph has none; what they change the certificate finds."""
    x = _first(args, kwargs)
    note_another_way(current)
    if not isinstance(current, Look | Replay) and not x.requires_grad:
        return None if name_of(func) == "retain_grad" else RemovableHandle(OrderedDict())
    if isinstance(current, Look) and name_of(func) == "register_hook" and is_differentiated(x):
        note_a_cut(current, name_of(func))
    return func(*args, **kwargs)


def refuse(func: Any, because: str) -> NoReturn:
    name = name_of(func)
    raise Refused(f"{name}{'' if name.endswith('=') else '()'} at {here()} {because}")


def _first(args: Any, kwargs: Any) -> Any:
    return args[0] if args else kwargs.get("input", kwargs.get("self"))


_NUMBERS = "takes numbers out of the program, which torch does not differentiate. "
_LAID_OUT = ("Transpose", "Permute", "View", "UnsafeView", "Reshape", "Clone", "Squeeze", "Unsqueeze", "ToCopy")
_CONSTANT = "has no derivative in torch, which takes its result for a constant."

READ = (
    *("item", "tolist", "numpy", "__array__", "__float__", "__int__", "__index__", "__complex__", "__long__"),
    *("__dlpack__", "__cuda_array_interface__", "__reduce_ex__", "_sym_int", "sym_float", "sym_int"),
)
# Functions that torch does not differentiate, though they are smooth.
WITHOUT_DERIVATIVE = (
    *("special_airy_ai", "special_spherical_bessel_j0", "special_zeta", "hash_tensor"),
    *(f"special_scaled_modified_bessel_k{order}" for order in (0, 1)),
    *(f"special_modified_bessel_{order}" for order in ("i0", "i1", "k0", "k1")),
    *(f"special_bessel_{order}" for order in ("j0", "j1", "y0", "y1")),
    *(f"special_{shifted}chebyshev_polynomial_{kind}" for shifted in ("", "shifted_") for kind in "tuvw"),
    *("special_hermite_polynomial_h", "special_hermite_polynomial_he"),
    *("special_laguerre_polynomial_l", "special_legendre_polynomial_p"),
)

CUTS: dict[str, Handler] = {
    **dict.fromkeys(("detach", "detach_copy", "data", "__deepcopy__"), detached),
    **dict.fromkeys(("tensor", "new_tensor"), copied),
    **dict.fromkeys(("as_tensor", "asarray"), joined),
    **dict.fromkeys(READ, read),
    "__contains__": told,
    **{name: refused(_CONSTANT) for name in WITHOUT_DERIVATIVE},
    **{name: refused(_NUMBERS + "Multiply with what has numbers of its own.") for name in ("arange", "range", "full")},
    **{name: refused(_NUMBERS + "Add to torch.zeros_like instead.", 1) for name in ("full_like", "new_full")},
    **{name: refused(_NUMBERS + "Scale torch.linspace(0, 1, steps) instead.") for name in ("linspace", "logspace")},
    "scalar_tensor": refused(_NUMBERS + "Write torch.stack instead."),
    "normal": refused(
        "moves with its mean, and its gradient in torch is 0. Write mean + std * torch.randn_like(mean)."
    ),
    **{name: refused("applies a function of Python to numbers, which has no derivative.") for name in ("apply_",)},
    **{
        name: refused("applies a function of Python to numbers, which has no derivative.") for name in ("map_", "map2_")
    },
    "data=": replaced,
    "detach_": detached_in_place,
    "view": seen_as_other_numbers,
    **{f"logical_{each}_": in_place_truth for each in ("not", "and", "or", "xor")},
    **dict.fromkeys(("to_sparse", "to_sparse_csr", "to_sparse_csc", "to_sparse_bsr", "to_sparse_bsc"), made_sparse),
    **dict.fromkeys(("requires_grad_", "requires_grad="), kept_out),
    **dict.fromkeys(("gaussian_nll_loss", "module_load"), noted),
    **dict.fromkeys(("storage", "untyped_storage", "_typed_storage", "data_ptr", "const_data_ptr"), noted),
    **dict.fromkeys(("retain_grad", "register_hook", "register_post_accumulate_grad_hook"), hooked),
    "gumbel_softmax": gumbel_softmax,
    "ctc_loss": aligned,
    "embedding": embedding,
    "embedding_bag": embedding,
}
# Of torch.nn.init.
FILLS = ("uniform_", "normal_", "constant_", "kaiming_uniform_")
