"""Eigenvectors and singular vectors at repeated values: what does not depend on a basis is right, the rest refused."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

import subgrad
from subgrad.clarke import Refused

Function = Callable[[Tensor], Tensor]


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def turned(*values: float) -> Tensor:
    """A symmetric matrix with these eigenvalues."""
    basis = torch.linalg.qr(random(len(values), len(values), seed=1))[0]
    return basis @ torch.diag(torch.tensor(values, dtype=torch.float64)) @ basis.T


def diagonal(*values: float) -> Tensor:
    return torch.diag(torch.tensor(values, dtype=torch.float64))


def symmetric(matrix: Tensor) -> Tensor:
    return (matrix + matrix.mT) / 2


def through_eigh(f: Function) -> Function:
    def function(matrix: Tensor) -> Tensor:
        found, vectors = torch.linalg.eigh(symmetric(matrix))
        return (vectors * f(found).unsqueeze(-2)) @ vectors.mT

    return function


def through_svd(combined: Callable[[Tensor, Tensor, Tensor], Tensor], full_matrices: bool = False) -> Function:
    return lambda matrix: combined(*torch.linalg.svd(matrix, full_matrices=full_matrices))


def weighed(function: Function, seed: int = 2) -> Function:
    """The sum of its entries with weights that are not symmetric."""
    return lambda matrix: ((out := function(matrix)) * random(*out.shape, seed=seed).to(out.dtype)).sum()


def differences(f: Function, x: Tensor, step: float = 1e-4) -> Tensor:
    """The gradient from values of the program around, to the fourth order."""
    found = []
    for place in range(x.numel()):
        e = torch.zeros(x.numel(), dtype=x.dtype)
        e[place] = step
        e = e.reshape(x.shape)
        found.append((8 * (f(x + e) - f(x - e)) - (f(x + 2 * e) - f(x - 2 * e))) / (12 * step))
    return torch.stack(found).reshape(x.shape)


def assert_differentiated(f: Function, x: Tensor) -> None:
    """Both modes agree with the values of the program around."""
    wanted = differences(f, x)
    torch.testing.assert_close(subgrad.grad(f)(x), wanted, rtol=1e-7, atol=1e-7)
    v = random(*x.shape, seed=3)
    torch.testing.assert_close(subgrad.jvp(f, (x,), (v,))[1], (wanted * v).sum(), rtol=1e-7, atol=1e-6)


SYMMETRIC = {
    "two and two": diagonal(1, 1, 2, 2),
    "identity": diagonal(1, 1, 1, 1),
    "two, turned": turned(1, 1, 2, 3),
    "three, turned": turned(0.5, 2, 2, 2),
}
FUNCTIONS: dict[str, Function] = {
    "exp": torch.exp,
    "log": torch.log,
    "sqrt": torch.sqrt,
    "inverse sqrt": torch.rsqrt,
    "inverse": torch.reciprocal,
    "sign": torch.sign,
    "projection": torch.relu,
    "cube": lambda found: found**3,
}


@pytest.mark.parametrize("f", FUNCTIONS.values(), ids=FUNCTIONS)
@pytest.mark.parametrize("matrix", SYMMETRIC.values(), ids=SYMMETRIC)
def test_functions_of_a_matrix_are_differentiated_through_eigh(matrix: Tensor, f: Function) -> None:
    assert_differentiated(weighed(through_eigh(f)), matrix)


def test_exp_through_eigh_is_that_of_torch() -> None:
    matrix = turned(1, 1, 2, 2)
    plain = weighed(lambda a: torch.linalg.matrix_exp(symmetric(a)))
    through = subgrad.grad(weighed(through_eigh(torch.exp)))(matrix)
    torch.testing.assert_close(through, torch.func.grad(plain)(matrix), rtol=1e-12, atol=1e-12)


OF_SVD: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "reconstruction": lambda u, s, v: (u * s) @ v,
    "cube": lambda u, s, v: (u * s**3) @ v,
    "sinh": lambda u, s, v: (u * s.sinh()) @ v,
    "left Gram matrix": lambda u, s, v: (u * s**2) @ u.T,
    "right Gram matrix": lambda u, s, v: (v.T * s**2) @ v,
    "norm of the reconstruction": lambda u, s, v: ((u * s) @ v + 1).norm()[None],
}
OF_FULL_RANK: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "polar factor": lambda u, s, v: u @ v,
    "pseudo-inverse": lambda u, s, v: v.T @ (u / s).T,
    "inverse sqrt": lambda u, s, v: (v.T / s.sqrt()) @ v,
}
SHAPES = ((3, 3), (4, 3), (3, 4), (5, 2), (2, 5))


@pytest.mark.parametrize("combined", {**OF_SVD, **OF_FULL_RANK}.values(), ids={**OF_SVD, **OF_FULL_RANK})
@pytest.mark.parametrize("shape", SHAPES)
def test_what_is_made_of_singular_vectors_is_differentiated_where_values_repeat(
    shape: tuple[int, int], combined: Callable[[Tensor, Tensor, Tensor], Tensor]
) -> None:
    left, right = (torch.linalg.qr(random(size, size, seed=4))[0] for size in shape)
    matrix = 2 * left @ torch.eye(*shape, dtype=torch.float64) @ right
    assert_differentiated(weighed(through_svd(combined)), matrix)


@pytest.mark.parametrize("combined", OF_SVD.values(), ids=OF_SVD)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("rank", [0, 1])
def test_what_is_made_of_singular_vectors_is_differentiated_where_values_vanish(
    shape: tuple[int, int], rank: int, combined: Callable[[Tensor, Tensor, Tensor], Tensor]
) -> None:
    matrix = random(shape[0], rank, seed=4) @ random(rank, shape[1], seed=5)
    assert_differentiated(weighed(through_svd(combined)), matrix)


@pytest.mark.parametrize("shape", [(5, 2), (2, 5)])
def test_projections_on_what_is_beside_a_matrix_are_differentiated(shape: tuple[int, int]) -> None:
    def projections(u: Tensor, s: Tensor, v: Tensor) -> Tensor:
        beside = u[:, 2:] @ u[:, 2:].T if len(u) == 5 else v[2:].T @ v[2:]
        return beside + 0 * s.sum()

    matrix = torch.eye(*shape, dtype=torch.float64)
    assert_differentiated(weighed(through_svd(projections, full_matrices=True)), matrix)


def test_projections_on_the_space_of_a_repeated_value_are_differentiated() -> None:
    def projection(matrix: Tensor) -> Tensor:
        vectors = torch.linalg.eigh(symmetric(matrix))[1]
        return vectors[:, :2] @ vectors[:, :2].T

    assert_differentiated(weighed(projection), turned(1, 1, 2, 2))


def test_the_logarithm_near_one_is_differentiated_though_its_values_are_rounding() -> None:
    """What vectors contribute is then as small as what they should not contribute."""
    for seed in range(8):
        basis = torch.linalg.qr(random(4, 4, seed=seed))[0]
        assert_differentiated(weighed(through_eigh(torch.log)), symmetric(basis @ basis.T))


@pytest.mark.parametrize("side", ["L", "U"])
def test_eigh_is_differentiated_in_the_triangle_that_it_reads(side: str) -> None:
    def f(matrix: Tensor) -> Tensor:
        found, vectors = torch.linalg.eigh(matrix, UPLO=side)
        return weighed(lambda a: a)((vectors * found.exp()) @ vectors.T)

    assert_differentiated(f, diagonal(1, 1, 2))


def test_vectors_may_meet_on_both_sides_of_a_constant() -> None:
    """Nothing before the sum is independent of the basis."""
    middle = random(4, 4, seed=6)

    def f(matrix: Tensor) -> Tensor:
        found, vectors = torch.linalg.eigh(symmetric(matrix))
        block = vectors.T @ middle @ vectors
        return (block * torch.outer(found.exp(), found.log()) * block.T).sum()

    assert_differentiated(f, turned(1, 1, 2, 2))


def test_decompositions_follow_each_other() -> None:
    f = weighed(lambda a: through_eigh(torch.sqrt)(through_eigh(torch.exp)(a)))
    assert_differentiated(f, turned(1, 1, 2, 3))

    def values_again(matrix: Tensor) -> Tensor:
        found, vectors = torch.linalg.eigh(symmetric(matrix))
        return (vectors * torch.linalg.eigvalsh(torch.diag(found)).exp()) @ vectors.T

    assert_differentiated(weighed(values_again), turned(1, 1, 2, 3))


def test_values_that_always_repeat_are_differentiated() -> None:
    weights = weighed(through_eigh(torch.exp))
    assert_differentiated(lambda x: weights(x[0] * x[1] * torch.eye(4, dtype=torch.float64)), random(2))
    doubled = torch.eye(2, dtype=torch.float64)
    assert_differentiated(lambda a: weights(torch.kron(symmetric(a), doubled)), doubled)
    assert_differentiated(lambda a: weights(a @ a.T), random(4, 1))
    assert_differentiated(lambda x: weighed(through_svd(OF_SVD["sinh"]))(torch.outer(x[0], x[1])), random(2, 4))


def test_whitening_is_differentiated_where_the_covariance_is_the_identity() -> None:
    rows = 2 * torch.linalg.qr(random(8, 4))[0]
    assert_differentiated(weighed(lambda x: x @ through_eigh(torch.rsqrt)(x.T @ x / 4)), rows)


def mixed(*shape: int) -> Tensor:
    """A batch of matrices in which every second has repeated values."""
    return torch.stack(
        [turned(1, 1, 2), symmetric(random(3, 3, seed=7)), diagonal(2, 2, 2), turned(3, 1, 0.5)]
    ).reshape(*shape, 3, 3)


def test_one_matrix_of_a_batch_does_not_touch_another_in_eigh() -> None:
    def simple_ones(batch: Tensor) -> Tensor:
        found, vectors = torch.linalg.eigh(symmetric(batch))
        return found[..., 1, :].exp().sum() + weighed(lambda a: a)(vectors[..., 1, :, :])

    batch = mixed(2, 2)
    gradient = subgrad.grad(simple_ones)(batch)
    assert not gradient[:, 0].any()
    simple = batch.clone()
    simple[:, 0] = symmetric(random(2, 3, 3, seed=8))
    torch.testing.assert_close(gradient[:, 1], torch.func.grad(simple_ones)(simple)[:, 1], rtol=1e-11, atol=1e-11)


def test_vectors_of_one_matrix_of_a_batch_are_not_touched_by_another() -> None:
    def simple_ones(batch: Tensor) -> Tensor:
        return weighed(lambda a: a)(torch.linalg.eigh(symmetric(batch))[1][..., 1, :, :])

    batch = mixed(2, 2)
    simple = batch.clone()
    simple[:, 0] = symmetric(random(2, 3, 3, seed=8))
    gradient, plain = subgrad.grad(simple_ones)(batch), torch.func.grad(simple_ones)(simple)
    torch.testing.assert_close(gradient[:, 1], plain[:, 1], rtol=1e-11, atol=1e-11)


def test_one_matrix_of_a_batch_does_not_touch_another_in_svd() -> None:
    def simple_ones(batch: Tensor) -> Tensor:
        u, s, v = torch.linalg.svd(batch, full_matrices=False)
        return s[..., 1, :].exp().sum() + weighed(lambda a: a)(u[..., 1, :, :]) + weighed(lambda a: a)(v[..., 1, :, 1])

    batch = torch.cat((mixed(2, 2), random(2, 2, 2, 3, seed=9)), -2)
    batch[:, 0, 3:] = 0
    gradient = subgrad.grad(simple_ones)(batch)
    assert not gradient[:, 0].any()
    simple = batch.clone()
    simple[:, 0] = random(2, 5, 3, seed=8)
    torch.testing.assert_close(gradient[:, 1], torch.func.grad(simple_ones)(simple)[:, 1], rtol=1e-11, atol=1e-11)


def test_matrices_of_a_batch_are_differentiated_together() -> None:
    assert_differentiated(weighed(through_eigh(torch.exp)), mixed(2, 2))
    combined = through_svd(lambda u, s, v: (u * s.exp().unsqueeze(-2)) @ u.mT)
    assert_differentiated(weighed(combined), mixed(4))


@pytest.mark.parametrize("name", [*list(OF_SVD)[:-1], *OF_FULL_RANK])
def test_complex_matrices_are_differentiated(name: str) -> None:
    combined = {**OF_SVD, **OF_FULL_RANK}[name]

    def f(pair: Tensor) -> Tensor:
        u, s, v = torch.linalg.svd(torch.complex(pair[0], pair[1]))
        # `T` of real matrices is `mH` here.
        out = combined(_Adjoint(u), s, _Adjoint(v))  # type: ignore[arg-type]
        return weighed(lambda a: a.real)(out) + weighed(lambda a: a.imag, seed=9)(out)

    assert_differentiated(f, torch.stack((turned(1, 1, 2), torch.zeros(3, 3, dtype=torch.float64))))


class _Adjoint:
    """A complex matrix whose ``T`` is its adjoint."""

    def __init__(self, matrix: Tensor) -> None:
        self.matrix = matrix

    @property
    def T(self) -> Tensor:  # noqa: N802
        return self.matrix.mH

    def __mul__(self, row: Tensor) -> Tensor:
        return self.matrix * row

    def __truediv__(self, row: Tensor) -> _Adjoint:
        return _Adjoint(self.matrix / row)

    def __matmul__(self, other: _Adjoint) -> Tensor:
        return self.matrix @ other.matrix

    def __rmatmul__(self, other: Tensor) -> Tensor:
        return other @ self.matrix


def test_complex_hermitian_matrices_and_vanishing_values_are_differentiated() -> None:
    def hermitian(pair: Tensor) -> Tensor:
        found, vectors = torch.linalg.eigh(torch.complex(symmetric(pair[0]), pair[1] - pair[1].T))
        return weighed(lambda a: a.real + 2 * a.imag)((vectors * found.exp()) @ vectors.mH)

    def of_low_rank(pair: Tensor) -> Tensor:
        u, s, v = torch.linalg.svd(torch.complex(pair[0], pair[1]))
        return weighed(lambda a: a.real + 2 * a.imag)((u * s.sinh()) @ v)

    nothing = torch.zeros(4, 4, dtype=torch.float64)
    assert_differentiated(hermitian, torch.stack((turned(1, 1, 2, 3), nothing)))
    assert_differentiated(of_low_rank, torch.stack((diagonal(1, 0, 0, 3), nothing)))


BENT: dict[str, Function] = {
    "projection on a cone": weighed(through_eigh(torch.relu)),
    "size": weighed(through_eigh(torch.abs)),
    "elu": weighed(through_eigh(lambda found: torch.nn.functional.elu(found, 2.0))),
    "shrunk": weighed(through_eigh(lambda found: torch.nn.functional.softshrink(found, 1.0))),
    "shrunk singular values": weighed(through_svd(lambda u, s, v: (u * torch.relu(s - 1)) @ v)),
    "best of rank two": weighed(through_svd(lambda u, s, v: (u[:, :2] * s[:2]) @ v[:2])),
    "nuclear norm": lambda a: torch.linalg.matrix_norm(a, "nuc"),
    "nuclear norm by svd": lambda a: torch.linalg.svd(a)[1].sum(),
    "spectral norm": lambda a: torch.linalg.matrix_norm(a, 2),
    "least singular value": lambda a: torch.linalg.matrix_norm(a, -2),
    "largest eigenvalue": lambda a: torch.linalg.eigvalsh(symmetric(a))[-1],
    "sum of two eigenvalues": lambda a: torch.linalg.eigvalsh(symmetric(a))[-2:].sum(),
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("matrix", [diagonal(0, 0, 0, 0), diagonal(-1, 0, 0, 2), diagonal(0, 0, 1, 1)], ids=str)
@pytest.mark.parametrize("f", BENT.values(), ids=BENT)
def test_where_a_program_bends_it_has_the_gradient_of_points_ahead(f: Function, matrix: Tensor, seed: int) -> None:
    found = subgrad.element(f, seed=seed)(matrix)
    step = 1e-7
    ahead = torch.func.grad(f)(matrix + step * found.direction)  # where no value repeats
    torch.testing.assert_close(found.gradient, ahead, rtol=1e-5, atol=1e-4)
    moved = (f(matrix + step * found.direction) - f(matrix)) / step
    assert found.slope == pytest.approx(float(moved), rel=1e-4, abs=1e-4)


def test_the_distance_to_a_cone_is_differentiated_on_its_border() -> None:
    f = lambda a: (symmetric(a) - through_eigh(torch.relu)(a)).norm()  # noqa: E731
    border = diagonal(0, 0, 1, 1)
    inside = 0
    for seed in range(8):
        found = subgrad.element(f, seed=seed)(border)
        if torch.linalg.eigvalsh(symmetric(found.direction)[:2, :2])[0] > 0:  # into the cone, where it is 0
            inside += 1
            assert found.gradient.abs().max() < 1e-12
        else:
            ahead = torch.func.grad(f)(border + 1e-6 * found.direction)
            torch.testing.assert_close(found.gradient, ahead, rtol=1e-5, atol=1e-4)
    assert 0 < inside < 8


def test_the_condition_number_is_differentiated_ahead() -> None:
    matrix = diagonal(3, 3, 1, 1)
    found = subgrad.element(torch.linalg.cond)(matrix)
    ahead = torch.func.grad(torch.linalg.cond)(matrix + 1e-7 * found.direction)
    torch.testing.assert_close(found.gradient, ahead, rtol=1e-5, atol=1e-5)


ON_A_BASIS: dict[str, Function] = {
    "one vector": lambda a: (torch.linalg.eigh(symmetric(a))[1][:, 0] * random(4)).sum(),
    "an entry": lambda a: torch.linalg.eigh(symmetric(a))[1][0, 0],
    "squares": weighed(lambda a: torch.linalg.eigh(symmetric(a))[1] ** 2),
    "left vectors": weighed(lambda a: torch.linalg.svd(a)[0]),
    "right vectors": weighed(lambda a: torch.linalg.svd(a, full_matrices=False)[2]),
    "a projection on half of a space": weighed(lambda a: (q := torch.linalg.eigh(symmetric(a))[1])[:, :1] @ q[:, :1].T),
    "different weights": weighed(
        lambda a: ((d := torch.linalg.eigh(symmetric(a)))[1] * torch.arange(4.0, dtype=a.dtype)) @ d[1].T
    ),
}


@pytest.mark.parametrize("f", ON_A_BASIS.values(), ids=ON_A_BASIS)
@pytest.mark.parametrize("matrix", [diagonal(1, 1, 2, 3), turned(1, 1, 2, 2), diagonal(1, 1, 1, 1)], ids=str)
def test_what_depends_on_the_basis_is_refused_with_its_line(matrix: Tensor, f: Function) -> None:
    with pytest.raises(Refused, match=r"(eigh|svd) at .*test_spectra_vectors.py:\d+"):
        subgrad.grad(f)(matrix)
    with pytest.raises(Refused, match=r"(eigh|svd) at .*test_spectra_vectors.py:\d+"):
        subgrad.jvp(f, (matrix,), (random(4, 4, seed=3),))


def test_what_depends_on_the_basis_is_refused_though_its_value_does_not() -> None:
    def f(matrix: Tensor) -> Tensor:
        vectors = torch.linalg.eigh(symmetric(matrix))[1]
        return (vectors[:, 0] * vectors.detach()[:, 1]).sum()

    with pytest.raises(Refused, match=r"eigh at .*test_spectra_vectors.py"):
        subgrad.grad(f)(diagonal(1, 1, 2))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("matrix", [diagonal(1, 2, 0, 0), diagonal(1, 1, 2, 0), diagonal(1, 2, 3, 0)], ids=str)
def test_polar_factors_of_singular_matrices_are_refused(matrix: Tensor, seed: int) -> None:
    with pytest.raises(Refused, match=r"svd at .*test_spectra_vectors.py"):
        subgrad.grad(weighed(through_svd(lambda u, s, v: u @ v)), seed=seed)(matrix)


def test_along_a_direction_that_turns_no_basis_vectors_move_as_their_values_do() -> None:
    """The vectors that torch returns are those ahead, and how they turn depends on second derivatives."""
    matrix = diagonal(1, 1, 2, 3)
    ahead = symmetric(diagonal(1, 2, 3, 4) + random(4, 4, seed=5).tril(-2))
    for f in (ON_A_BASIS["one vector"], weighed(through_eigh(torch.exp)), weighed(through_svd(OF_SVD["sinh"]))):
        moved = (f(matrix + 1e-6 * ahead) - f(matrix)) / 1e-6
        torch.testing.assert_close(subgrad.jvp(f, (matrix,), (ahead,))[1], moved, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("size", [4, 48])
def test_single_precision_is_as_exact_as_it_can_be(size: int) -> None:
    weights = random(size, size)
    f = lambda a: (through_eigh(torch.rsqrt)(a) * weights.to(a.dtype)).sum()  # noqa: E731
    found = subgrad.grad(f)(torch.eye(size))
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), -symmetric(weights) / 2, rtol=1e-4, atol=1e-4)


def test_the_norm_of_a_reconstruction_is_the_norm() -> None:
    matrix = torch.diag(torch.tensor([1.0, 1.0, 2.0]))
    f = through_svd(lambda u, s, v: ((u * s) @ v).norm())
    torch.testing.assert_close(subgrad.grad(f)(matrix), matrix / matrix.norm(), rtol=1e-6, atol=1e-6)


def test_parameters_of_a_module_get_the_gradient() -> None:
    layer = torch.nn.Linear(3, 3, bias=False, dtype=torch.float64)
    torch.nn.init.eye_(layer.weight)
    f = weighed(through_eigh(torch.exp))
    loss = subgrad.backward(lambda: f(layer.weight), layer.parameters())
    assert torch.equal(loss, f(layer.weight).detach())
    assert layer.weight.grad is not None
    torch.testing.assert_close(layer.weight.grad, differences(f, layer.weight.detach()), rtol=1e-7, atol=1e-7)


def test_values_are_those_of_torch_to_the_bit_and_repeat() -> None:
    f, matrix = weighed(through_eigh(torch.exp)), turned(1, 1, 2, 2)
    together = subgrad.value_and_grad(f)
    first, second = together(matrix), together(matrix)
    assert torch.equal(first[0], f(matrix))
    assert torch.equal(first[0], second[0])
    assert torch.equal(first[1], second[1])


def test_values_that_rounding_of_a_large_matrix_parts_count_as_repeated() -> None:
    apart = 30 * torch.finfo(torch.float64).eps
    matrix = diagonal(1, 1 - apart, *torch.linspace(0.9, 0.1, 22).tolist())
    plain = weighed(lambda a: torch.linalg.matrix_exp(symmetric(a)))
    found = subgrad.element(weighed(through_eigh(torch.exp)))(matrix)
    assert found.kinks
    torch.testing.assert_close(found.gradient, torch.func.grad(plain)(matrix), rtol=1e-10, atol=1e-10)


def test_values_within_a_tolerance_count_as_repeated() -> None:
    f = weighed(through_eigh(torch.exp))
    found = subgrad.element(f, tol=1e-6)(diagonal(1, 1 + 1e-8, 2))
    assert found.kinks
    torch.testing.assert_close(found.gradient, differences(f, diagonal(1, 1, 2)), rtol=1e-6, atol=1e-6)


def of_a_triangle(matrix: Tensor, side: str) -> Tensor:
    found, vectors = torch.linalg.eigh(matrix, UPLO=side)
    return (vectors * found.exp()) @ vectors.T


BY_RULES: dict[str, Function] = {
    **{name: through_svd(combined) for name, combined in {**OF_SVD, **OF_FULL_RANK}.items()},
    **{f"{name} of eigenvalues": through_eigh(FUNCTIONS[name]) for name in ("exp", "cube")},
    **{f"triangle {side}": partial(of_a_triangle, side=side) for side in ("L", "U")},
}


@pytest.mark.parametrize("matrix", [diagonal(2, 2, 2), diagonal(3, 3, 1)], ids=["three", "two"])
@pytest.mark.parametrize("kind", BY_RULES)
def test_gradient_and_slope_are_those_of_the_values_where_none_are_asked(kind: str, matrix: Tensor) -> None:
    """With a tolerance rules answer by themselves."""
    f = weighed(BY_RULES[kind], seed=5)
    found, wanted = subgrad.element(f, tol=1e-9)(matrix), differences(f, matrix)
    torch.testing.assert_close(found.gradient, wanted, rtol=1e-7, atol=1e-7)
    assert found.slope == pytest.approx(float((wanted * found.direction).sum()), rel=1e-7)


@pytest.mark.parametrize("side", [0, 2], ids=["left", "right"])
def test_what_depends_on_one_basis_of_vanishing_values_is_refused(side: int) -> None:
    def f(matrix: Tensor) -> Tensor:
        vectors = torch.linalg.svd(matrix)[side]
        columns = (vectors.T if side else vectors)[:, 2:]
        return weighed(lambda a: a)(columns @ columns.T) + (columns[:, 0] * columns[:, 1].detach()).sum()

    for tol in (0.0, 1e-9):
        with pytest.raises(Refused, match=r"depends on which basis svd at .*test_spectra_vectors.py"):
            subgrad.grad(f, tol=tol)(diagonal(2, 1, 0, 0))


@pytest.mark.parametrize("seed", range(4))
def test_signs_of_matrices_of_which_one_vanishes_jump(seed: int) -> None:
    """Vectors have other sides in other directions, though in this one they may be those of torch."""

    def signs(x: Tensor) -> Tensor:
        u, _, v = torch.linalg.svd(x[:, None, None])
        return (u @ v)[0].sum()

    with pytest.raises(Refused, match="jumps"):
        subgrad.grad(signs, seed=seed)(torch.tensor([0.0, 2.0], dtype=torch.float64))


def test_matrices_without_symmetry_and_with_a_tolerance_where_eigenvalues_are_apart() -> None:
    f = lambda a: torch.linalg.eigvals(a).real.square().sum()  # noqa: E731
    matrix = diagonal(1, 2, 4) + 0.1 * random(3, 3)
    torch.testing.assert_close(subgrad.grad(f, tol=1e-9)(matrix), 2 * matrix.T, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("f", [torch.linalg.eigvals, lambda a: torch.linalg.eig(a)[0]], ids=["eigvals", "eig"])
def test_matrices_without_symmetry_where_eigenvalues_repeat(f: Function) -> None:
    """They part like roots: what is smooth in the matrix all the same comes out, and the rest is refused."""
    for matrix in (diagonal(1, 1, 3), diagonal(1, 2, 3) + 0.1 * random(3, 3)):
        found = subgrad.grad(lambda a: f(a).pow(2).sum().real)(matrix)  # the trace of its square
        torch.testing.assert_close(found, 2 * matrix.T, rtol=1e-7, atol=1e-7)
    defective = torch.tensor([[1.0, 1.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 3.0]], dtype=torch.float64)
    with pytest.raises(Refused, match=r"eig at .*test_spectra_vectors.py"):
        subgrad.grad(lambda a: f(a).real.amax(-1) - f(a).real.amin(-1) + f(a).imag.abs().sum())(defective)
