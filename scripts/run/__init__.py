"""From a case of an article to a stored result."""
