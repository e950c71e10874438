"""The conformance suite: is this backend right?

Run it with `pytest conformance --backend=NAME` in a checkout or `python -m conformance --backend=NAME` anywhere. The checks are the
`test_<area>.py` modules beside this file; everything else is what they stand on. Importing this package imports no torch.
"""

CONTRACT_REVISION = "2026.11"
"""Names the list of clauses in `contract_text.py`; reports made under different revisions are not compared clause by clause."""
