"""From an automaton to fast code: numbers, generated source, compiled kernels.

machine    the automaton in numbers
plan       where each coin's rows come from: everywhere the same, per page, per result
source_*   the text of each kernel, readable and free of anybody's names
library    compiles that text once per machine and keeps it in a per-user cache folder
"""
