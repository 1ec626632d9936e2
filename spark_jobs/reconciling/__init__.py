"""Comparing what was scheduled with what arrived: counts of everything first (`counts`), ids only where they disagree (`closer`), then the verdict."""
