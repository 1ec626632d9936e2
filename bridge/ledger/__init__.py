"""The ledger's files, and those of what was observed."""
