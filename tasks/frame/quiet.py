"""What libraries say on their own behalf, kept off a program's output."""

from __future__ import annotations

import os
import sys
import warnings


def quiet() -> None:
    """No progress bars of transformers' own where nobody watches; no warning that peft uses an old name of theirs."""
    warnings.filterwarnings("ignore", message=".*is_gradient_checkpointing. is deprecated", category=FutureWarning)
    if sys.stderr.isatty():
        return
    # a program that may not need transformers does not import it to silence it
    os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
    if "transformers" in sys.modules:
        from transformers.utils import logging

        logging.disable_progress_bar()
