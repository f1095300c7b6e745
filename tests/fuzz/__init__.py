"""Random models, and random damage: what nobody thought of."""
