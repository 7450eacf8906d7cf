"""What is true, found the slow way. Nothing here imports what it judges."""
