"""The parts acceptance tests are put together from: processes, a tap between relay and node, load, quick signing."""
