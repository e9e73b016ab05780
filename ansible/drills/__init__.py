"""Failover drills: what clients see, and what is lost, while something breaks.

python -m drills (PYTHONPATH=ansible, or make drill).  ledger.py is the client, faults.py says what can be
broken, drills.py is the list of drills, report.py the table.
"""
