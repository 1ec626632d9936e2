"""The audit: `ledgers` makes inputs in the daemon's own format, `plain` is the same audit in plain Python."""
