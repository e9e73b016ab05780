"""Failover drills: what clients see, and what is lost, while something breaks.

python -m drills (PYTHONPATH=ansible:., or make drill).  ledger.py is the client, faults.py says what
can be broken and lab_faults.py does it, drill.py runs one drill, drills.py lists all, report.py is
the table.
"""
