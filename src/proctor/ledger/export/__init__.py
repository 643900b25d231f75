"""Episodes in other forms: JSON lines, Parquet, Minari, or a bundle, which is a ledger of one episode."""
