"""Ranks: processes in which checks run real collectives, started once and fed with examples."""
