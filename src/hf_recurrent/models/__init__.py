"""Models: a package for each architecture, above `common`, `ops` and `engine`."""
