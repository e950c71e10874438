"""The commands of `accelerator-conformance`, one module each; `reports/command_line.py` puts them together."""
