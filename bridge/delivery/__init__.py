"""Delivery: what is due goes out, each destination in its turn, and what one does not take is held back."""
