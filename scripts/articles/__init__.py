"""The articles as data: cases, published numbers and claims of bench/articles/*.toml."""

from scripts.articles.model import ARTICLES, PUBLISHED, Article, Case, find, load_all, slugs, tolerances, without_mistakes

__all__ = ["ARTICLES", "PUBLISHED", "Article", "Case", "find", "load_all", "slugs", "tolerances", "without_mistakes"]
