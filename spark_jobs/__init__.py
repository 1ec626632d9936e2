"""PySpark jobs that compare what was scheduled (the ledger) with what was delivered. `reconcile` is the entry point; docs/audit.md tells how to run it.

    inputs, columns      what is read, checked at the door; malformed rows are set aside
    completeness         how far each bridge's ledger reaches
    buckets, codes       what is counted together, and how long a delay is
    fingerprints, counts, disagreements   which buckets disagree, without looking at a single id
    closer, settling, sightings           the ids behind that: in the ledger, and at the destinations
    summary, histories   the tables
    audit                all of it in order; verdict: what it means
    session, hadoop, runs, outputs, terminal, report    the world outside

Nothing here runs in a Python worker: executors need Spark and nothing else.
"""
