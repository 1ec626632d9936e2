"""PySpark jobs that compare what was scheduled (the ledger) with what was delivered. `reconcile` is the entry point; docs/audit.md tells how to run it.

    reconcile, watch, forecast    the commands; arguments, command, session: what they have in common
    question, columns             what is asked, and of what shape the inputs are
    reading                       the inputs, checked at the door; malformed rows are set aside
    completeness                  what can be judged: how far each bridge's ledger reaches, and when somebody listened
    buckets, codes                what is counted together, and how long a delay is
    reconciling                   the comparison: of counts first, of ids where they disagree; audit has all of it in order
    reporting                     tables, JSON, the page, the terminal
    watching, forecasting         what `watch` and `forecast` do
    frames, hadoop, runs          Spark's data frames, folders on any file system, and a folder's latest result

Nothing here runs in a Python worker: executors need Spark and nothing else.
"""
