"""The completeness scan: every differentiable entry of PyTorch's operator database, probed where kinks may lie."""
