"""Pure decoders: bytes in, plain values out. No file is opened here."""
