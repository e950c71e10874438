"""Typed errors of the reports.

ReportError
└── ResultsFileError   a results file cannot be written or read
"""

from __future__ import annotations


class ReportError(Exception):
    """Base of every error that the reports raise on purpose."""


class ResultsFileError(ReportError):
    """A results file cannot be written or read; the message names the file and the reason."""
