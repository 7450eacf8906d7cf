"""The matrix front door: click models in the paper's own definition, as activation matrices.

`read` makes a model of a definition, `write` a definition of a model; `czm` and `ubm` are the
paper's own two mappings, for pages of any length. `definition` lists the fields.
"""

from gecasmo.matrices.definition import automaton, read
from gecasmo.matrices.export import write
from gecasmo.matrices.mappings import czm, ubm

__all__ = ["automaton", "czm", "read", "ubm", "write"]
