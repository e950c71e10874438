"""`verify`: is a package whole, unaltered, and consistent with itself and with the contract?

For: judging files of strangers. Each module holds steps; `examining.py` runs them in order. Nothing from the package is executed, and
nothing is written. Not for: reading the files safely (`reports.safe_archive`, `reports.strict_json`), or running the suite again
(`reports.replay`).
"""
