"""Authorities and, later, effective-dated rules."""
