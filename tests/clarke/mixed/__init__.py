"""Random programs of everything that has a rule: smooth parts, kinks, jumps that cancel, loops, inner derivatives.

They are held against their own values nearby, in float64 and, where that is not sharp enough, in numbers of 50 digits.
"""
