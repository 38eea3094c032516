"""What readers get: releasing what is live, and taking a rebuild back."""
