"""From an automaton to fast code: numbers, generated source, compiled kernels.

machine    the automaton in numbers
plan       where each coin's rows come from: everywhere the same, per page, per result
e_step     the source of the E-step, in four shapes
page       the source of the kernels that answer page by page
library    compiles that text once per machine and keeps it in a per-user cache folder
machine_code  what compiling gives: how it is made, loaded and called
shipped    what comes compiled with the package
"""
