"""Each theorem of the paper against simulation: what it predicts, what is measured, whether they agree."""
