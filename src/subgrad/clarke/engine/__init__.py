"""How an element is found: the passes over a program, the search for a direction, and the certificate."""
