"""Brokers. The contract is in `base`; each broker is one module or folder beside it, which alone imports that broker's client library."""
