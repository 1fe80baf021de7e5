"""Speed and memory of every row against torch's own operators, side by side in one run."""
