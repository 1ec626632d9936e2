"""The daemon: intake, lanes, ledger, control, HTTP, command line. Only here is a connection made again, a destination held back, a message dead-lettered.

- `daemon`: signals and exit codes, around an
- `engine`: one store, an intake per route, a lane per destination broker, built from a `config`.
- `workers`: the threads; they connect, drive, and connect again. `apart`: clients in processes of their own.
- `intake`: source, planner, store, acknowledge.
- `delivery`: lane, sink, settle; holds for destinations that do not take messages now.
- `level_queues`: where messages wait on the broker; `migrate`: from one kind of store to the other.
- `ledger`: what became of each message, as files.
- `control`: what people ask of it, through `http` and `cli`.
"""
