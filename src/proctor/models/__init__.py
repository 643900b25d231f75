"""What crosses a wire or goes on record, shared by client and server; knows neither of them."""
