"""From judged rows to pages and plots."""
