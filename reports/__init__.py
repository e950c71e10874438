"""What a run becomes: a typed report, and the command line `accelerator-conformance`."""
