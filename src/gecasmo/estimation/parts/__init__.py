"""Fits over the parts of a log: in memory, on disk, on a cluster, with the same passes."""
