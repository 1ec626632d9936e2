"""The daemon: intake, lanes, ledger, control, HTTP, command line. Only here is a connection made again, a destination held back, a message dead-lettered.

- `daemon`: signals and exit codes, around an
- `engine`: one store, an intake per route, a lane per destination broker, built from a `config`.
- `workers`: the threads; they connect, drive, and connect again.
- `intake`: source, `planner`, store, acknowledge.
- `lane`: store, sink, settle; `holds` for destinations that do not take messages now.
- `control`: what people ask of it, through `http` and `cli`.
"""
