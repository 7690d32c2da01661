"""The contracts that operators and those who run them share, and the values that pass between them."""
