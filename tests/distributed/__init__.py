"""Conventions on PyTorch's distributed engine, in two real processes."""
