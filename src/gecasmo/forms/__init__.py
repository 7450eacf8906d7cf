"""How the rows of a coin get their probability: a free table, a constant.

A form knows nothing of clicks, only of rows and of expected heads and tails.
"""

from gecasmo.forms.fixed import Fixed
from gecasmo.forms.protocol import Form, FormState, VectorForm
from gecasmo.forms.table import Table, TableState

__all__ = ["Fixed", "Form", "FormState", "Table", "TableState", "VectorForm"]
