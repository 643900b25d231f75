"""Verdicts as commands print them: as JSON, as rows, explained, and summed up; and the lines of JSON that they are about."""
