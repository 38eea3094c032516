"""Taking a rebuild back."""
