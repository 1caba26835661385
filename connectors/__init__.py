"""How bytes come and go: one folder per outside system, behind the ports of `ports.py`.

Imports `schemas` only.
"""
