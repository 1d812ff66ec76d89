"""The English-German translation task of WMT 2014."""
