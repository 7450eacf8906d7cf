"""From a log to the arrays that kernels read: observations, row numbers, pages in order.

Sorting, coding and folding live here and never show: everything that is returned to a user
follows the order of the input.
"""

from gecasmo.encoding.encoded import EncodedLog
from gecasmo.encoding.encoder import encode
from gecasmo.encoding.features import Wanted
from gecasmo.encoding.rows import Rows

__all__ = ["EncodedLog", "Rows", "Wanted", "encode"]
