"""From a fitted model to judgments of relevance that other tools read."""
