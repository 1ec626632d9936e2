"""Telling people and machines: tables and JSON (`outputs`), the page (`report`), and the terminal."""
