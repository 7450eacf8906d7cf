"""Random programs, random logs and random probabilities, for laws that hold for all of them."""
