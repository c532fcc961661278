"""Black box: everything here knows the relay by its command line and its addresses only, and never imports it."""
