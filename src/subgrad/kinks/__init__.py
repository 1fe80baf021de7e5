"""Where: the table of kinks."""

from subgrad.kinks.kink import Kink, Table
from subgrad.kinks.table import KINKS

__all__ = ["KINKS", "Kink", "Table"]
