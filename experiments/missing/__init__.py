"""Tables 4 to 7 where blocks are missing at random: refined rows against the paper and our own EVCDS and IEVCDS."""
