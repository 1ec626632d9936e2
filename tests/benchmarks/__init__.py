"""Measurements against the budgets of the design: `python -m tests.benchmarks` from the repository's root, or `make bench`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))  # `from brokers import rabbitmq`, as the tests do
