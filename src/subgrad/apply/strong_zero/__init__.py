"""`strong_zero`: where a slope is infinite or nan and the cotangent is exactly 0, the gradient is 0 and not nan."""
