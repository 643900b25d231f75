"""The rules of the judge, and rules of one's own."""
