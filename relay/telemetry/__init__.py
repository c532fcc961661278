"""What the relay tells its operators: logs (`logs`) and metrics (`metrics`)."""
