"""The commands as their users run them, each with a Spark of its own; the tests beside this folder share one."""
