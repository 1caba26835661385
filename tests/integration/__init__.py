"""The whole stream, on real servers."""
