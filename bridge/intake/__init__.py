"""Intake: from a message that came to one durable change of the store."""
