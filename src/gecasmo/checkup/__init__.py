"""The doctor: what is wrong with a log, and what it can and cannot tell about a model."""
