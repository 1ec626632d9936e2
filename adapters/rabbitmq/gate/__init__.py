"""The gate of an exchange: what stands around it (`surroundings`), why there can be none (`refusals`), and what leads to it and back (`gate`)."""
