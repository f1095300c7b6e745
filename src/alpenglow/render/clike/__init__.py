"""What C and the languages that descend from it say alike; dialects say the rest."""
