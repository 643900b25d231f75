"""The pages that people look at: what is served to a browser, and how."""
