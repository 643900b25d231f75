"""The strongest policy of Column Popper, a beam search over moves."""
