"""One file per dialect: its header names, and what they ask for. `core.headers.DIALECTS` lists them."""
