"""Looking after what is kept: `cachestack doctor`, `backup`, `restore`, `migrate`."""
