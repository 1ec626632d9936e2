"""Exactly once: the transactional producer (`transactor`, on `state`), and what it takes for no end of a transaction to be lost (`markers`, `identities`)."""
