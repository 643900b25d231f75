"""What runs environments: adapters, executors, results, time limits."""
