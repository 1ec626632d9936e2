"""PySpark jobs that compare what was scheduled (the ledger) with what was delivered."""
