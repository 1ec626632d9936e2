"""The rules: headers -> schedule -> due times, and where messages wait. Knows no broker, no configuration and no wall clock.

- `fields`, `message`: what a message is.
- `headers`, `dialects`: what its headers ask for (docs/headers.md).
- `schedule`, `recurrence`, `cron`, `durations`: when that is.
- `explain`: the same for people; `levels`: the levels that a delay is made of; `reasons`: why a message is refused.
- `store`: where messages wait, the contract; `time_index`: kept on local disk (docs/store.md).
- `ledger`: what is written down about each message.
"""
