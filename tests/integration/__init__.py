"""Tests beside real brokers."""
