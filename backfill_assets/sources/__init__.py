"""sources: where raw tables' lines come from; landing folders, and the manifest of what was delivered."""
