"""How: the chosen element reaches unchanged torch code."""
