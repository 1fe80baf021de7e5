"""Every kink in your PyTorch program: chosen, seen, proven, and fast."""

from subgrad.apply.active import active
from subgrad.apply.use import set_default, use
from subgrad.conventions import Convention
from subgrad.kinks import KINKS as kinks

__version__ = "0.1.0"
__all__ = ["Convention", "active", "kinks", "set_default", "use"]
