//! Files cut short, before they are opened and after.

use std::fs::{File, OpenOptions as Fs};

use rml::model::{Gguf, OpenOptions};

use crate::{EVERY_TYPE, directory, read, refusal};

/// Where the last tensor ends; only padding follows. Told by the Python package: `foreign` has 18 bytes at 992.
const END: usize = 992 + 18;

#[test]
fn every_length_gives_a_clean_error() {
    for n in 0..END {
        let refusal = refusal(&EVERY_TYPE[..n]);
        let remedy = ["the download is incomplete", "not a GGUF file"].iter().any(|remedy| refusal.contains(remedy));
        assert!(refusal.starts_with("test.gguf: ") && remedy, "{n} bytes: {refusal}");
    }
    for n in END..=EVERY_TYPE.len() {
        assert_eq!(read(&EVERY_TYPE[..n]).unwrap().tensors().len(), 4, "{n} bytes");
    }
}

#[test]
fn short_files_on_disk_give_the_same_errors() {
    let path = directory("short").join("test.gguf");
    for n in [0, 1, 4, 23, 24, 500, END - 1] {
        std::fs::write(&path, &EVERY_TYPE[..n]).unwrap();
        for mmap in [true, false] {
            let error = Gguf::open_with(&path, &OpenOptions { mmap }).unwrap_err().to_string();
            assert!(error.starts_with(path.to_str().unwrap()), "{n} bytes: {error}");
            assert!(["incomplete", "not a GGUF", "empty"].iter().any(|word| error.contains(word)), "{n} bytes: {error}");
        }
    }
}

#[test]
fn a_file_read_into_memory_may_be_cut_short_afterwards() {
    let path = directory("cut").join("test.gguf");
    std::fs::write(&path, EVERY_TYPE).unwrap();
    let file = Gguf::open_with(&path, &OpenOptions { mmap: false }).unwrap();
    Fs::new().write(true).open(&path).unwrap().set_len(0).unwrap();
    let tensor = file.tensor("vector").unwrap();
    file.release(tensor);
    assert_eq!(file.bytes(tensor), [1.0_f32, 2.0, 3.0].map(f32::to_le_bytes).concat());
}

#[test]
fn released_bytes_can_be_read_again() {
    let path = directory("released").join("test.gguf");
    std::fs::write(&path, EVERY_TYPE).unwrap();
    let file = Gguf::open(&path).unwrap();
    file.tensors().iter().for_each(|tensor| file.release(tensor));
    assert_eq!(file.bytes(file.tensor("vector").unwrap()), [1.0_f32, 2.0, 3.0].map(f32::to_le_bytes).concat());
}

#[test]
fn what_is_no_file_is_refused() {
    let directory = directory("no-file");
    let error = Gguf::open(&directory).unwrap_err().to_string();
    assert!(error.contains("holds no config.json; give a .gguf file, or the directory of a Hugging Face model"), "{error}");
    let missing = directory.join("missing.gguf");
    let error = Gguf::open(&missing).unwrap_err().to_string();
    assert!(error.contains("missing.gguf: cannot open"), "{error}");
    assert!(File::open(&missing).is_err());
    #[cfg(unix)]
    assert!(Gguf::open("/dev/zero".as_ref()).unwrap_err().to_string().contains("not a regular file"));
}
