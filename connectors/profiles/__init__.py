"""Source profiles: small TOML files that say how a source's files become records of a contract.

A profile renames members, converts units and maps words; it never infers. Read in data order:
`forms` and `model` (what a profile may say), `load` (from file to `Profile`), then `csv_profile`
with `columns` for CSV, `json_profile` with `report` and `members` for vendors' JSON; `convert`,
`numbers`, `dates`, `paths`, `spans` and `lookups` are what both are made of. The shipped ones lie
in `shipped/`.
"""

from connectors.profiles.load import (
    Profile,
    check_profile,
    load_profile,
    profile_text,
    shipped_profiles,
)

__all__ = ["Profile", "check_profile", "load_profile", "profile_text", "shipped_profiles"]
