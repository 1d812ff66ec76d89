"""The export unit: flat files, of which a checkpoint on the Hub carries those its family needs."""
