"""Why: one operator, one expression at one point, or two of them, explained as frozen data."""
