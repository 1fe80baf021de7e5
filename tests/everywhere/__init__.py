"""Every way in which PyTorch differentiates, under every convention."""
