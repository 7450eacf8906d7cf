"""What `Torch` is made of: calling modules, training them, and networks in files."""
