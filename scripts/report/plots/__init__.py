"""The pictures of the report: SVG with text as text, drawn without a font, so that the same rows give the same bytes on every machine."""
