"""Long documents as language models read them: rows of segments in order, with the state carried between."""

from .corpus import TokenDocuments, encode_documents
from .reader import DocumentReader, Segment

__all__ = ["DocumentReader", "Segment", "TokenDocuments", "encode_documents"]
