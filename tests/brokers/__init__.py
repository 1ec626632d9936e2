"""Brokers for tests, benchmarks and people: found, or started."""
