"""Functions without rows of their own: their kinks are those of what they call, and conventions reach them there."""

from __future__ import annotations

# What users call, and the overloads of the table with kinks that it calls. Jumps among them are left out.
# fmt: off
THROUGH: dict[str, tuple[str, ...]] = {
    # losses
    "F.l1_loss":                                  ("abs",),
    "F.smooth_l1_loss(beta=0)":                   ("abs",),
    "F.margin_ranking_loss":                      ("clamp_min",),
    "F.hinge_embedding_loss":                     ("clamp_min",),
    "F.cosine_embedding_loss":                    ("clamp_min",),
    "F.triplet_margin_loss":                      ("norm.ScalarOpt_dim", "clamp_min"),
    "F.triplet_margin_with_distance_loss":        ("norm.ScalarOpt_dim", "clamp_min"),

    # norms and distances
    "F.normalize":                                ("linalg_vector_norm", "clamp_min"),
    "F.cosine_similarity":                        ("linalg_vector_norm",),  # the bound on it is not differentiated
    "F.pairwise_distance":                        ("norm.ScalarOpt_dim",),
    "torch.cdist":                                ("_euclidean_dist",),  # where there are many rows
    "torch.cdist(p=inf)":                         ("_cdist_forward",),
    "torch.std":                                  ("std.correction",),
    "torch.norm":                                 ("linalg_vector_norm",),
    "torch.linalg.norm":                          ("linalg_vector_norm",),
    "torch.linalg.matrix_norm(ord='fro')":        ("linalg_vector_norm",),
    "torch.linalg.matrix_norm(ord=inf)":          ("linalg_vector_norm", "amax"),
    "torch.linalg.matrix_norm(ord=2)":            ("_linalg_svd", "amax"),
    "torch.linalg.matrix_norm(ord='nuc')":        ("_linalg_svd",),
    "torch.linalg.cond(p=2)":                     ("_linalg_svd",),

    # selections
    "torch.max(x, y)":                            ("maximum",),
    "torch.msort":                                ("sort",),
    "torch.quantile":                             ("sort",),
    "torch.nanquantile":                          ("sort",),
    "F.max_pool1d":                               ("max_pool2d_with_indices",),
    "F.adaptive_max_pool1d":                      ("adaptive_max_pool2d",),

    # entry by entry
    "torch.absolute":                             ("abs",),
    "torch.clip":                                 ("clamp",),
    "F.relu6":                                    ("hardtanh",),
    "F.selu":                                     ("elu",),
}
# fmt: on
