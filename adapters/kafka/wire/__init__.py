"""Kafka's record format: batches are read and written here, because the client's own way loses some of what records hold."""
