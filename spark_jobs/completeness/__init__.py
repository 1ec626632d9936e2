"""What the audit can judge, and what it cannot yet: how far each ledger reaches, and when somebody listened. The rule is in `rule`."""
