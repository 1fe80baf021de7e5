"""The survey of real versions of torch, and what it is held against."""
