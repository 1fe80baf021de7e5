"""Programs of other people's packages under conventions: their models, unchanged."""
