"""Long documents: whole books, papers, repositories and packages, one an example."""
