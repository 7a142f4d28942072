"""What may enter a store of objects, and what headgate fills in on the way: checks, defaults, injection, advice."""
