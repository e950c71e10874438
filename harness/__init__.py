"""The reference implementation: accelerator contract, process-group normalizer and routed-expert alignment.

Needs torch (2.7 or newer) alone, and is fit to be vendored into a framework. Import from the sub-packages.
"""
