"""The store whose messages wait in level queues on a broker: `store: {kind: level_queues}`. See docs/scaling.md."""
