"""Export of models to graphs that run where Python does not."""

from .program import Exportable, export_program
from .runtimes import FORMATS, export_model, format_of

__all__ = ["FORMATS", "Exportable", "export_model", "export_program", "format_of"]
