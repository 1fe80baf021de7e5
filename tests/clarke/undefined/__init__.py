"""Random programs in which slopes are infinite or not defined at the point, though the program has a gradient there.

They are held against their own values nearby, in numbers of 320 digits.
"""
