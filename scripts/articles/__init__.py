"""The articles as data: cases, published numbers and claims of bench/articles/*.toml."""

from scripts.articles.model import ARTICLES, Article, Case, find, load_all

__all__ = ["ARTICLES", "Article", "Case", "find", "load_all"]
