"""WebShop in its ``text`` mode: search a catalogue, open a product, choose options, buy (Yao et al. 2022)."""
