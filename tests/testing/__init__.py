"""Programs with known derivatives, right and wrong, for what checks derivatives."""
