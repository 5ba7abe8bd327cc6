"""One folder for each paper, with all that is its own; what they share; and the comparison of their methods."""
