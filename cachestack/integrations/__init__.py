"""Other libraries' cache interfaces over a stack; one module a library, imported where it is wanted."""
