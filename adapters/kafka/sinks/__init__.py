"""Publishing: whole batches through the client's idempotent producer (`sender`), and the sink that makes them of messages."""
