"""`weighbridge replay`: a bounded range of a topic to a file with a manifest, or decided again.

asked.py     what is wanted: offsets, times, run, key, or the range of an earlier manifest
extent.py    what that is in the log now: [first, end) of each partition, fixed at the start
tally.py     counts, exact sums and a digest of what passes by
committed.py records of a committed topic as rows of a file
raw.py       records of a raw or quarantine topic as rows of a file
manifest.py  what a file is, in a file beside it
export.py    the range to the file
dry_run.py   the range decided again, compared with the stored verdicts
"""
