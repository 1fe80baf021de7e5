"""What each operator does on its kinks in the passes: which branch the tangents choose, and the derivative along it."""
