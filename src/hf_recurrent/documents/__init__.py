"""Long documents for language models: batches of segments in order, so that a state can be carried between them."""

from .corpus import TokenDocuments, encode_documents
from .reader import DocumentReader, Segment

__all__ = ["DocumentReader", "Segment", "TokenDocuments", "encode_documents"]
