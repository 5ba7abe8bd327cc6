"""The comparison of all five papers' methods: settings, grid, statistics, tuning, and what it answers."""

from fedlib.papers.comparison.settings import (
    COLUMNS,
    EXHIBITS,
    ON_PLAIN,
    PROFILES,
    PROTOCOLS,
    Parameters,
    about,
    coverage,
    parameters,
    reason,
)

__all__ = ["COLUMNS", "EXHIBITS", "ON_PLAIN", "PROFILES", "PROTOCOLS", "Parameters", "about", "coverage", "parameters", "reason"]
