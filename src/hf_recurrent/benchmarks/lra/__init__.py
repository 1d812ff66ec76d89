"""Long Range Arena: long lists, texts, pairs of texts, photographs and drawings."""
