"""How conventions go with `torch.compile`."""
