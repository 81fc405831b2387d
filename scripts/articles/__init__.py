"""The articles as data: cases, published numbers and claims of bench/articles/*.toml."""

from scripts.articles.model import ARTICLES, Article, Case, apart, find, load_all, slugs, tolerances, without_mistakes, without_mistakes_told
from scripts.articles.references import PUBLISHED, VARIANTS

__all__ = ["ARTICLES", "PUBLISHED", "VARIANTS", "Article", "Case"]
__all__ += ["apart", "find", "load_all", "slugs", "tolerances", "without_mistakes", "without_mistakes_told"]
