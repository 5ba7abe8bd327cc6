"""Small things that know nothing of the kit: names, files, seeds, processes."""
