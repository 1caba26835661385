"""What `streams.publish` is made of, in the order of the data.

rows.py             a file's row as the record that will be published
chunks.py           rows cut into chunks; the plan that the first reading makes. Pure
source_manifest.py  a file held against the manifest of its source
state.py            how far a publication has come: the state file's content and its rules
sending.py          chunks to Kafka, each once, at a bounded rate; the manifest of a run
summary.py          what became of files, and progress meanwhile
"""
