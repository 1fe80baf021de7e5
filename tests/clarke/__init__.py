"""The gradient of the whole program, held against exact sets."""
