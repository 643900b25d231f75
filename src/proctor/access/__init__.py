"""What every socket checks first: Host, Origin, credentials, sizes, depth and rates; and what a log may show."""
