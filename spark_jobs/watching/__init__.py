"""The parts of `delaybridge audit watch`; `spark_jobs/watch.py` is the entry point. docs/audit.md tells what is promised.

    streams        what happens, as one stream: rows of the ledgers, sightings at the topics
    occurrences    what is still open, as tables that each batch carries on
    alerts         what is wrong, and what was wrong
    bridges        how far each ledger was read, and which bridge is silent
    rounds         one round: absorb what is there, then look
    state          all of it on disk, below the checkpoint; telling: alerts on their way out

A round first lets Spark's streaming query absorb everything that is in the files and topics (trigger AvailableNow), and then looks at the clock and the
bridges' marks, which were read before. So "it is not there" always means "everything up to then has been read, and it is not there", also while nothing
arrives: a running query would not call us then. Spark's own watermark is not used: it drops what comes later, and knows of no bridge.

Each batch makes new tables from the last ones, and one rename puts them in force together with the batch's number: a batch that Spark repeats after a crash
is known by it. Nothing here runs in a Python worker.
"""
