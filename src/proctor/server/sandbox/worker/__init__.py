"""What runs inside a sandbox: the zygote, the worker, and what confines them."""
