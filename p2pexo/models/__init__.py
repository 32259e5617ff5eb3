"""Model cards, the catalogue, the store on disk, downloads and the GGUF import."""
