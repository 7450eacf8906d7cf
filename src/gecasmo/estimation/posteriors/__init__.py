"""What is believed about each row after the log has been seen, and priors learned from all rows."""
