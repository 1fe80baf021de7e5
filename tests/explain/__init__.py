"""Explanations of operators and expressions."""
