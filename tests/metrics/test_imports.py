"""What importing the metrics costs."""

import subprocess
import sys


def test_metrics_are_imported_without_torch():
    code = (
        "import sys, hf_recurrent.metrics.bleu, hf_recurrent.metrics.answers;"
        "sys.exit(any(name in sys.modules for name in ('torch', 'transformers', 'datasets')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
