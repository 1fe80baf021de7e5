"""What the scan finds or cannot probe and the table does not say, with the reason: one honest line each."""

from __future__ import annotations

SINGULAR = "singular matrices are outside its domain; rounding hides them from the check, and it answers with noise"
PIVOTS = "the pivot is a choice among entries of equal size, and the factors jump where another one is taken"
FACTORS = "the signs, and where the rank changes the basis, are a choice that jumps"
RANK = "jumps where the rank changes: there is no generalised derivative to choose from"
EPS = "with a negative power slopes grow until the smallest entry is as small as its eps, and no further"

# Entries with a kink, a jump or a pole that no row covers.
REASONS = {
    "max_pool2d_with_indices_backward": "a derivative of max_pool2d, which jumps where that has a kink: see its row",
    "nn.functional.rrelu": "while training, who draws random numbers depends on the signs, and so do all later numbers",
    "nn.functional.poisson_nll_loss": "its Stirling term is masked out up to a target of 1: a jump in the target",
    "lu": PIVOTS,
    "linalg.lu": PIVOTS,
    "linalg.lu_factor": PIVOTS,
    "linalg.lu_factor_ex": PIVOTS,
    "linalg.eig": "without symmetry values split like roots where they repeat, and vectors are scaled by a choice",
    "linalg.eigvals": "eigenvalues of a matrix without symmetry split like roots where they repeat, and have no order",
    "qr": FACTORS,
    "linalg.qr": FACTORS,
    "linalg.polar": RANK,
    "pinverse": RANK,
    "linalg.pinv": RANK,
    "linalg.pinv.singular": RANK,
    "linalg.pinv.hermitian": RANK,
    "linalg.lstsq": RANK,
    "linalg.lstsq.grad_oriented": RANK,
    "linalg.cond": "infinite where the matrix is singular, which rounding makes a large number",
    "nn.functional.normalize": EPS,
    "masked.normalize": EPS,
    "div.trunc_rounding": "infinite where the divisor is 0, and flat between the steps before it, which have a row",
    "div.floor_rounding": "infinite where the divisor is 0, and flat between the steps before it, which have a row",
    "linalg.matrix_sqrth": "like sqrt at 0 where an eigenvalue is 0, and outside its domain below",
    "linalg.cholesky_ex": "where the matrix is not positive definite it says so in `info`, and its values mean nothing",
    "linalg.inv_ex": SINGULAR,
    "linalg.solve": SINGULAR,
    "linalg.solve_ex": SINGULAR,
    "linalg.tensorsolve": SINGULAR,
    "linalg.tensorinv": SINGULAR,
}
# Of these, what the quick scan finds on some processors and not on others, or only the full scan does: elsewhere the
# reason is not needed, and that is no mistake.
SELDOM = (
    *("linalg.tensorsolve", "linalg.tensorinv", "linalg.lu_factor", "linalg.solve"),
    *("nn.functional.normalize", "masked.normalize"),
)

# Entries that can be probed nowhere.
UNPROBED = {
    "as_strided.partial_views": "reads memory beyond its input, which does not move with it",
    "view_as_real": "takes complex numbers only, and is linear",
    "imag": "takes complex numbers only, and is linear",
    "istft": "takes complex numbers only, and is linear",
    "nn.functional.one_hot": "takes integers only",
    "torch.ops.aten._flash_attention_forward": "runs on GPUs only",
    "torch.ops.aten._efficient_attention_forward": "runs on GPUs only",
}
