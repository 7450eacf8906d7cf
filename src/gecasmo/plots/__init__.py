"""Pictures of logs, fits and comparisons; made with Altair."""
