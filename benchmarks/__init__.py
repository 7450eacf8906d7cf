"""How fast is gecasmo? `python -m benchmarks` from the root of the repository says."""
