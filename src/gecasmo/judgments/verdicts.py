"""What is said of a pair."""

JUDGED, ORDERED, INSUFFICIENT = "judged", "ordered", "insufficient"
