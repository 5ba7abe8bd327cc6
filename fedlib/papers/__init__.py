"""What each notebook runs: profiles, settings and tables of one paper, as data."""
