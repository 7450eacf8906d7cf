"""Source of the kernels that answer questions page by page.

Filter and marginal spell the edges of small machines out; all others loop over them.
"""

from gecasmo.kernels.page.decode import Decode
from gecasmo.kernels.page.expected import Expected, PageChains
from gecasmo.kernels.page.filter import Filter
from gecasmo.kernels.page.frame import page_arguments
from gecasmo.kernels.page.marginal import Marginal
from gecasmo.kernels.page.sample import Sample, Stories
from gecasmo.kernels.page.smooth import Smooth

__all__ = [
    "Decode",
    "Expected",
    "Filter",
    "Marginal",
    "PageChains",
    "Sample",
    "Smooth",
    "Stories",
    "page_arguments",
]
