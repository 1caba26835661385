"""Records from files on this machine: NDJSON and CSV, read as a stream in bounded memory."""

from connectors.files.rows import FileRow, MalformedFile, RowReader
from connectors.files.source_file import SUFFIXES, Checked, SourceFile, find_files, read_records

__all__ = [
    "SUFFIXES",
    "Checked",
    "FileRow",
    "MalformedFile",
    "RowReader",
    "SourceFile",
    "find_files",
    "read_records",
]
