"""Tests that kill what must survive it."""
