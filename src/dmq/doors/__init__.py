"""Ways in. A door decodes, calls one verb of the broker's service, and encodes; it decides nothing."""
