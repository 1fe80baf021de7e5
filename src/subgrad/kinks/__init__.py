"""Where: the table of kinks."""

from subgrad.kinks.kink import Kink, Table
from subgrad.kinks.sets import Slopes, Ties
from subgrad.kinks.table import KINKS

__all__ = ["KINKS", "Kink", "Slopes", "Table", "Ties"]
