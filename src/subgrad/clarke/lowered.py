"""Operators that are run by others: losses made from hinges, and what torch has no forward mode for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.torch_version import TorchVersion

from subgrad.apply.branches import Call
from subgrad.apply.passing import running
from subgrad.clarke.linear import carries_tangents_alone, tangent, valued, values, with_tangent
from subgrad.clarke.passes import Decide, Look, Looked
from subgrad.clarke.refused import Refused, here
from subgrad.clarke.selections import Ranked


@dataclass(frozen=True)
class Hinged(Looked):
    """The rule of a loss that is a sum of corners; a branch is the slope at each of them.

    Attributes:
        distances: of every corner's argument to the corner, linear in the arguments.
        total: the loss from what comes out of the corners.
        left: the slope on the left, beside 1 on the right.
        when: the arguments for which it has corners.
    """

    distances: Callable[[Any], Tensor]
    total: Callable[[Any, Tensor], Tensor]
    left: float
    when: Callable[[Any], bool] = lambda arguments: True
    wholly: bool = False  # it has no forward mode of its own

    def hits(self, call: Call, tol: float) -> Tensor | bool:
        return self.when(call.arguments) and (self.distances(call.arguments).abs() <= tol).any()

    def decide(self, call: Call, at: Decide) -> Tensor | None:
        if not self.when(call.arguments) and not self.wholly:
            return None
        distances = self.distances(call.arguments)
        moved = tangent(distances)
        with values():
            ahead = torch.zeros_like(distances) if moved is None else moved
            side = torch.where(distances.abs() <= at.tol, ahead, distances) > 0
            return torch.where(side, 1.0, self.left).to(distances.dtype)

    def along(self, call: Call, branch: Tensor) -> Any:
        with values():
            native = call.native(call.arguments)
        outputs = (native,) if isinstance(native, Tensor) else native
        found = valued(self.total(call.arguments, branch * self.distances(call.arguments)), outputs[0])
        return found if isinstance(native, Tensor) else (found, *outputs[1:])

    def around(self, call: Call, current: Any) -> Any:
        raise NotImplementedError


def _reduced(arguments: Any, losses: Tensor) -> Tensor:
    return losses if arguments["reduction"] == 0 else losses.mean() if arguments["reduction"] == 1 else losses.sum()


def _rows(arguments: Any) -> tuple[Tensor, Tensor]:
    x = arguments["self"] if arguments["self"].ndim else arguments["self"].reshape(1)
    return x.reshape(-1, x.shape[-1]), arguments["target"]


def _to_the_margin(arguments: Any) -> Tensor:
    rows, target = _rows(arguments)
    labels = target.reshape(-1, 1)
    return arguments["margin"] - rows.gather(1, labels) + rows


def _margin_total(arguments: Any, hinges: Tensor) -> Tensor:
    rows, target = _rows(arguments)
    labels = target.reshape(-1, 1)
    others = torch.arange(rows.shape[1], device=rows.device) != labels
    if arguments["weight"] is not None:
        hinges = hinges * arguments["weight"][labels]
    losses = torch.where(others, hinges ** arguments["p"], 0).sum(1) / rows.shape[1]
    return _reduced(arguments, losses.reshape(target.shape))


def _label_gaps(arguments: Any) -> Tensor:
    rows, target = _rows(arguments)
    labels = target.reshape(rows.shape).clamp(min=0)
    return 1 - rows.gather(1, labels).unsqueeze(2) + rows.unsqueeze(1)


def _labels_total(arguments: Any, hinges: Tensor) -> Tensor:
    rows, target = _rows(arguments)
    labels = target.reshape(rows.shape)
    listed = (labels < 0).cumsum(1) == 0  # labels end at the first that is negative
    is_label = torch.zeros_like(rows).scatter_add(1, labels.clamp(min=0), listed.to(rows.dtype)) > 0
    counts = listed.unsqueeze(2) & ~is_label.unsqueeze(1)
    losses = torch.where(counts, hinges, 0).sum((1, 2)) / rows.shape[1]
    return _reduced(arguments, losses.reshape(target.shape[:-1] if target.ndim > 1 else ()))


LOSSES: dict[str, Any] = {
    "smooth_l1_loss": Hinged(lambda a: a["self"] - a["target"], _reduced, -1.0, lambda a: a["beta"] == 0),
    "multi_margin_loss": Hinged(_to_the_margin, _margin_total, 0.0, lambda a: a["p"] == 1, wholly=True),
    "multilabel_margin_loss_forward": Hinged(_label_gaps, _labels_total, 0.0, wholly=True),
}


class Bags:
    """The rule of `embedding_bag`: that of a selection for maxima; sums and means are linear, without forward mode."""

    is_site, wholly = True, True

    def __init__(self) -> None:
        self.largest = Ranked("weight")

    def look(self, call: Call, tol: float) -> tuple[Any, Tensor | bool]:
        return self.largest.look(call, tol) if call.arguments["mode"] == 2 else (call.run(), False)

    def hits(self, call: Call, tol: float) -> Tensor | bool:
        return call.arguments["mode"] == 2 and self.largest.hits(call, tol)

    def decide(self, call: Call, at: Decide) -> Any:
        return self.largest.decide(call, at) if call.arguments["mode"] == 2 else "linear"

    def along(self, call: Call, branch: Any) -> Any:
        if call.arguments["mode"] == 2:
            return self.largest.along(call, branch)
        with values():
            outputs = call.native(call.arguments)
        return valued(_summed(call.arguments, len(outputs[0])), outputs[0]), *outputs[1:]

    def around(self, call: Call, current: Any) -> Any:
        raise NotImplementedError


def _summed(arguments: Any, bags: int) -> Tensor:
    """Sums or means of the rows in each bag."""
    weight, indices, offsets = arguments["weight"], arguments["indices"], arguments["offsets"]
    places = torch.arange(len(indices), device=indices.device, dtype=offsets.dtype)
    bag = torch.searchsorted(offsets[:bags].contiguous(), places, right=True) - 1
    counted = (indices != arguments["padding_idx"]).to(weight.dtype)
    factors = counted if arguments["per_sample_weights"] is None else counted * arguments["per_sample_weights"]
    sums = weight.new_zeros(bags, weight.shape[1]).index_add(0, bag, weight[indices] * factors.unsqueeze(1))
    if arguments["mode"] == 0:
        return sums
    return sums / counted.new_zeros(bags).index_add(0, bag, counted).clamp(min=1).unsqueeze(1)


class Aligned:
    """The rule of `ctc_loss`, smooth and without forward mode: the derivative of each loss, from its gradient."""

    is_site, wholly = True, True

    def look(self, call: Call, tol: float) -> tuple[Any, Tensor | bool]:
        return call.run(), False

    def hits(self, call: Call, tol: float) -> bool:
        return False

    def decide(self, call: Call, at: Decide) -> str:
        return "smooth"

    def along(self, call: Call, branch: Any) -> Any:
        with torch.enable_grad():
            scores = call.arguments["log_probs"].detach().requires_grad_()
            losses, alpha = call.native({**call.arguments, "log_probs": scores})
            (slopes,) = torch.autograd.grad(losses.sum(), scores)
        moved = (slopes * call.arguments["log_probs"]).sum((0, -1)).reshape(losses.shape)
        return valued(moved, losses.detach()), alpha.detach()

    def around(self, call: Call, current: Any) -> Any:
        raise NotImplementedError


BY_HAND: dict[str, Any] = {"_embedding_bag": Bags(), "_ctc_loss": Aligned(), "_ctc_loss.Tensor": Aligned()}


class Cells:
    """The rule of bilinear sampling: at a border the grid is a little further on, inside the cell it moves into.

    A branch is by how much, which is as little as the coordinates of pixels can still tell.
    """

    is_site = True
    wholly = TorchVersion(torch.__version__) < "2.15"  # no forward mode

    def look(self, call: Call, tol: float) -> tuple[Any, Tensor | bool]:
        with values():
            flag = self.hits(call, tol)
        return call.run(), flag

    def hits(self, call: Call, tol: float) -> Tensor | bool:
        return call.arguments["grid"].numel() > 0 and self._on_borders(call, tol).any()

    def _on_borders(self, call: Call, tol: float) -> Tensor:
        """A coordinate lies on a border if the next number to either side of it does so as well or lies elsewhere."""
        found = [kink.hits(call.arguments) for kink in call.op.kinks if kink.applies(call.arguments)]
        if not found:
            return torch.zeros((), dtype=torch.bool, device=call.arguments["grid"].device)
        return found[0]

    def decide(self, call: Call, at: Decide) -> Tensor | None:
        moved = tangent(call.arguments["grid"])
        with values():
            grid = call.arguments["grid"]
            if moved is None:
                return torch.zeros_like(grid)
            hit = self._on_borders(call, at.tol)
            if call.arguments["interpolation_mode"] != 0 and bool(hit.any()):
                raise Refused(f"grid_sample at {here()} jumps, or has no rule, where the grid meets a border of cells.")
            step = 64 * torch.finfo(grid.dtype).eps * grid.abs().clamp(min=1)
            return torch.where(hit, torch.sign(moved) * step, 0)

    def along(self, call: Call, branch: Tensor) -> Any:
        with values():
            value = call.native(call.arguments)
        if self.wholly and carries_tangents_alone():
            return with_tangent(value, _sampled_slope(call, branch))
        return valued(call.native({**call.arguments, "grid": call.arguments["grid"] + branch}), value)

    def around(self, call: Call, current: Any) -> Any:
        raise NotImplementedError


def _sampled_slope(call: Call, shift: Tensor) -> Tensor:
    """The derivative of a sampled image: linear in the image, and in the grid from the gradient of each channel."""
    image, grid = (tangent(call.arguments[name]) for name in ("input", "grid"))
    with torch.enable_grad():
        plain = call.arguments["input"].detach()
        place = (call.arguments["grid"].detach() + shift).requires_grad_()
        out = call.native({**call.arguments, "input": plain, "grid": place})
        found = torch.zeros_like(out.detach())
        if grid is not None:
            for channel in range(out.shape[1]):
                (slopes,) = torch.autograd.grad(out[:, channel].sum(), place, retain_graph=True)
                found[:, channel] = (slopes * grid).sum(-1)
    if image is not None:
        with values():
            found += call.native({**call.arguments, "input": image, "grid": place.detach()})
    return found


CELLS: dict[str, Any] = {"grid_sampler_2d": Cells(), "grid_sampler_3d": Cells()}


class Around:
    """A rule that only changes how a call is run."""

    is_site = False

    def look(self, call: Call, tol: float) -> Any:
        raise NotImplementedError

    decide = along = look


class Attention(Around):
    """Fused attention has no forward mode: the tangent pass takes the one that is written out.

    So do the others where there is dropout, since each draws random numbers in its own way.
    """

    def around(self, call: Call, current: Any) -> Any:
        is_random = bool(call.arguments["dropout_p"])
        if isinstance(current, Look) and not current.by_formula:
            current.redraws |= is_random
            return call.run()
        if not isinstance(current, Decide) and not is_random:
            return call.run()
        with sdpa_kernel(SDPBackend.MATH):
            return call.run()


class Recurrent(Around):
    """Fused recurrent layers have no forward mode, and hide their kinks."""

    def __init__(self, bends: bool):
        self.bends = bends

    def around(self, call: Call, current: Any) -> Any:
        if not self.bends and not isinstance(current, Decide):
            return call.run()
        with _unfused(), running(current):
            return call.run()


class Unflattened(Around):
    """Recurrent layers lay out new weights for their fused operators, which the tangent pass does not use."""

    def around(self, call: Call, current: Any) -> Any:
        return call.arguments["weight_arr"][0].new_empty(0) if isinstance(current, Decide) else call.run()


@contextmanager
def _unfused() -> Iterator[None]:
    with ExitStack() as stack:
        stack.enter_context(torch.backends.cudnn.flags(enabled=False))
        stack.enter_context(torch.backends.mkldnn.flags(enabled=False))
        yield


class Normalised(Around):
    """Batch statistics are kept once, by the plain run."""

    def __init__(self, training: str):
        self.training = training

    def around(self, call: Call, current: Any) -> Any:
        if self.training == "training" and call.arguments["training"] and carries_tangents_alone():
            return _normalised(call.arguments)
        kept = [call.arguments["running_mean"], call.arguments["running_var"]]
        if not call.arguments[self.training] or kept[0] is None:
            return call.run()
        if isinstance(current, Look):
            current.counts = True
            return call.run()
        copies = {"running_mean": kept[0].clone(), "running_var": kept[1].clone()}
        return call.native({**call.arguments, **copies})


def _normalised(arguments: Any) -> Tensor:
    """Batch normalisation in the tangent pass, with fewer sweeps over the data than torch's own formula."""
    x, weight, bias = (arguments[name] for name in ("input", "weight", "bias"))
    moved, scaled, shifted = (tangent(each) for each in (x, weight, bias))
    with values():
        out, mean, inverse = torch.native_batch_norm(x, weight, bias, None, None, True, 0.0, arguments["eps"])
        shape = [1, -1, *[1] * (x.ndim - 2)]
        centred = (x - mean.view(shape).to(x.dtype)) * inverse.view(shape).to(x.dtype)
        further = torch.zeros_like(out)
        if moved is not None:
            dims = [0, *range(2, x.ndim)]
            slope = inverse if weight is None else inverse * weight
            along = (centred * moved).mean(dims)
            further = torch.addcmul(
                -(slope * moved.mean(dims)).view(shape).to(x.dtype), moved, slope.view(shape).to(x.dtype)
            )
            scaled = -slope * along if scaled is None else scaled - slope * along
        if scaled is not None:
            further = torch.addcmul(further, centred, scaled.view(shape).to(x.dtype))
        if shifted is not None:
            further = further + shifted.view(shape)
    return with_tangent(out, further)


class Embedded(Around):
    """The row for padding is a constant to torch."""

    def around(self, call: Call, current: Any) -> Any:
        weight, row = call.arguments["weight"], call.arguments["padding_idx"]
        moved = tangent(weight)
        if moved is None or row < 0:
            return call.run()
        rows = torch.arange(len(weight), device=weight.device).unsqueeze(1) != row
        return call.native({**call.arguments, "weight": torch.where(rows, weight, weight.detach())})


class Quantile(Around):
    """Quantiles choose their entries where no rule can see it: here they are sorted first."""

    def around(self, call: Call, current: Any) -> Any:
        x, dim = call.arguments["self"], call.arguments["dim"]
        with running(current):
            ordered = (x.reshape(-1) if dim is None else x.movedim(dim, -1)).sort(-1).values
        if isinstance(current, Look):
            return call.run()
        with values():
            value = call.native(call.arguments)
            places = torch.arange(ordered.shape[-1], dtype=x.dtype, device=x.device).expand(ordered.shape)
            places = torch.where(ordered.isnan(), ordered, places).movedim(-1, 0 if dim is None else dim)
            place, low, high = (
                call.native({**call.arguments, "self": places, "interpolation": how}).nan_to_num()
                for how in (call.arguments["interpolation"], "lower", "higher")
            )
        if call.arguments["keepdim"]:
            place, low, high = (
                each.reshape(-1) if dim is None else each.squeeze(_at(each, dim, x)) for each in (place, low, high)
            )
        rows = ordered.expand(*low.shape, ordered.shape[-1])
        one, other = (rows.gather(-1, each.long().unsqueeze(-1)).squeeze(-1) for each in (low, high))
        return valued((one + (other - one) * (place - low)).reshape(value.shape), value)


def _at(result: Tensor, dim: int, x: Tensor) -> int:
    """Where the dimension that was kept is, behind that of several quantiles."""
    return dim % x.ndim + (result.ndim - x.ndim)


AROUND: dict[str, Any] = {
    **{name + form: Quantile() for name in ("quantile", "nanquantile") for form in ("", ".scalar")},
    "scaled_dot_product_attention": Attention(),
    "_cudnn_rnn_flatten_weight": Unflattened(),
    "batch_norm": Normalised("training"),
    "instance_norm": Normalised("use_input_stats"),
    "embedding": Embedded(),
    **{f"{name}.{form}": Recurrent(bends=False) for name in ("lstm", "gru", "rnn_tanh") for form in ("input", "data")},
    **{f"rnn_relu.{form}": Recurrent(bends=True) for form in ("input", "data")},
}
