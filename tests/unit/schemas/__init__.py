"""Tests of the schemas' sources and of what is generated from them."""
