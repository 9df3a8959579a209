"""What is saved: architectures as exact tensor lists, and how ranks share them."""
