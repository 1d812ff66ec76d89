"""What stopping earlier costs: a halting threshold that is lowered after training, against accuracy, work and time.

The figures live in `hf_recurrent.analysis.sweep.plots`, which is imported only by those who draw.
"""

from .examples import halting_pictures
from .sweep import default_thresholds, require_halting, sweep
from .table import SWEEP_FILE, write_sweep

__all__ = ["SWEEP_FILE", "default_thresholds", "halting_pictures", "require_halting", "sweep", "write_sweep"]
