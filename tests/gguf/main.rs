//! Reading GGUF: well-formed files, hostile files, split files, files of the world.

mod real;
