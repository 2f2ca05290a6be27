"""Our own harness against published numbers: recall of single mixers, text, and the study of hybrids."""
