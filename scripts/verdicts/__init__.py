"""From results to numbers and judgements; no Markdown."""
