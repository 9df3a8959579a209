"""Everything known after a storm: the record, the numbers and receipts drawn from it, its files."""
