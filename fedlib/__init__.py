"""fedlib: five papers on federated learning under test-time distribution shift, on one bench."""

__version__ = "0.2.0"
