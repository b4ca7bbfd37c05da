//! Files that lie. Each gives an error that says what is wrong; none panics, overflows, or takes memory it has no right to.

use proptest::prelude::*;
use rml::model::{Config, Tensors};

use crate::forged::{Forged, array, entry, tensor, text, with_entry, with_tensor};
use crate::{EVERY_TYPE, read, refusal};

const U8: u32 = 0;
const U32: u32 = 4;
const BOOL: u32 = 7;
const STRING: u32 = 8;
const ARRAY: u32 = 9;
const U64: u32 = 10;
const F32: u32 = 0;
const Q4_0: u32 = 2;

/// What the file lies about, the file, and what the error must say.
fn lies() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let header = |version| Forged { version, ..Forged::default() }.bytes();
    let alignment = |id, value: &[u8]| Forged { entries: vec![entry(b"general.alignment", id, value)], ..Forged::default() }.bytes();
    let alignment_and_tensor = Forged {
        entries: vec![entry(b"general.alignment", U64, &(1_u64 << 63).to_le_bytes())],
        tensors: vec![tensor(b"t", &[1], F32, 0)],
        ..Forged::default()
    }
    .bytes();
    let nested = |depth| {
        let inner = array(U8, 0, b"");
        with_entry(ARRAY, &(0..depth).fold(inner, |inner, _| array(ARRAY, 1, &inner)))
    };
    let two = |a, b| Forged { tensors: vec![a, b], data: vec![0; 64], ..Forged::default() }.bytes();
    let huge = 1_u64 << 30;
    vec![
        ("nothing", b"".to_vec(), "not a GGUF file"),
        ("another file", b"hello, world".to_vec(), r#"starts with "hell""#),
        ("unprintable start", b"\x1b[2J".to_vec(), r#"starts with "\x1b[2J""#),
        ("a web page", b"<!DOCTYPE html>".to_vec(), "a web page"),
        ("a pointer", b"version https://git-lfs.github.com/spec/v1".to_vec(), "git lfs pull"),
        ("older than GGUF", b"tjgg\x03\0\0\0".to_vec(), "a model from before GGUF (GGJT); convert the original model again"),
        ("much older than GGUF", b"lmgg\x01\0\0\0".to_vec(), "a model from before GGUF (GGML); convert"),
        (
            "safetensors",
            [&24_u64.to_le_bytes()[..], br#"{"__metadata__":{"a":1}}"#, &[0; 64]].concat(),
            "not a GGUF file but safetensors, which hold weights alone; give the directory",
        ),
        ("version 0", header(0), "version 0"),
        ("version 1", header(1), "version 1, which is not read any more"),
        ("version 4", header(4), "version 4"),
        ("big-endian", header(3_u32.swap_bytes()), "big-endian GGUF (version 3); convert it"),
        ("2^30 tensors", Forged { n_tensors: Some(huge), ..Forged::default() }.bytes(), "number of tensors, at 8, says 1073741824"),
        ("2^64 - 1 tensors", Forged { n_tensors: Some(u64::MAX), ..Forged::default() }.bytes(), "number of tensors"),
        ("2^30 entries", Forged { n_entries: Some(huge), ..Forged::default() }.bytes(), "number of metadata entries, at 16"),
        ("2^64 - 1 entries", Forged { n_entries: Some(u64::MAX), ..Forged::default() }.bytes(), "number of metadata entries"),
        (
            "empty key",
            Forged { entries: vec![entry(b"", U8, b"\0\0\0\0\0")], ..Forged::default() }.bytes(),
            "key of metadata entry 0, at 24, is empty",
        ),
        ("key that is not UTF-8", Forged { entries: vec![entry(b"\xff", U8, b"\0\0\0")], ..Forged::default() }.bytes(), "not valid UTF-8"),
        ("key that moves the cursor", Forged { entries: vec![entry(b"\x1b[2J", U8, b"\0")], ..Forged::default() }.bytes(), r"\u{1b}[2J"),
        (
            "key of 2^64 - 1 bytes",
            Forged { entries: vec![[&u64::MAX.to_le_bytes()[..], &[0; 64]].concat()], ..Forged::default() }.bytes(),
            "18446744073709551615 bytes long",
        ),
        (
            "key twice",
            Forged { entries: vec![entry(b"k", U8, b"\0"), entry(b"k", U8, b"\0")], ..Forged::default() }.bytes(),
            "metadata k stands twice",
        ),
        ("value of type 13", with_entry(13, b"\0"), "metadata k has the unknown value type 13 at 33"),
        ("truth value 2", with_entry(BOOL, b"\x02"), "holds 2 at 37"),
        ("truth value 2 in an array", with_entry(ARRAY, &array(BOOL, 3, b"\x01\x00\x02")), "holds 2 at 51"),
        ("text of 2^64 - 1 bytes", with_entry(STRING, &u64::MAX.to_le_bytes()), "metadata k needs 18446744073709551615 bytes at 45"),
        ("array of type 13", with_entry(ARRAY, &array(13, 0, b"")), "unknown element type 13"),
        ("2^30 bytes", with_entry(ARRAY, &array(U8, huge, b"")), "metadata k, at 41, says 1073741824"),
        ("2^62 u32, which wraps", with_entry(ARRAY, &array(U32, 1 << 62, b"")), "says 4611686018427387904"),
        ("2^30 texts", with_entry(ARRAY, &array(STRING, huge, b"")), "says 1073741824"),
        ("2^61 texts, which wraps", with_entry(ARRAY, &array(STRING, 1 << 61, b"")), "says 2305843009213693952"),
        ("2^30 arrays", with_entry(ARRAY, &array(ARRAY, huge, b"")), "says 1073741824"),
        ("arrays 10 deep", nested(10), "nests arrays more than 8 deep"),
        ("alignment 0", alignment(U32, &0_u32.to_le_bytes()), "general.alignment is u32 0; it must be a power of two"),
        ("alignment 24", alignment(U32, &24_u32.to_le_bytes()), "general.alignment is u32 24"),
        ("alignment in words", alignment(STRING, &text(b"32")), "general.alignment is a text"),
        ("alignment 2^63", alignment_and_tensor, "tensor t needs 4 bytes at 9223372036854775808"),
        ("no dimension", with_tensor(tensor(b"t", &[], F32, 0)), "tensor t has 0 dimensions"),
        ("5 dimensions", with_tensor(tensor(b"t", &[1; 5], F32, 0)), "tensor t has 5 dimensions"),
        ("dimension 0", with_tensor(tensor(b"t", &[4, 0], F32, 0)), "tensor t has the shape [4, 0]"),
        ("dimensions that wrap to 0", with_tensor(tensor(b"t", &[1 << 32, 1 << 32], F32, 0)), "which no file can hold"),
        ("dimensions that wrap to 4", with_tensor(tensor(b"t", &[(1 << 62) + 1, 4], F32, 0)), "which no file can hold"),
        ("bytes that wrap to 0", with_tensor(tensor(b"t", &[1 << 62], F32, 0)), "which no file can hold"),
        ("dimension 2^64 - 1 of an unknown type", with_tensor(tensor(b"t", &[u64::MAX, 2], 99, 0)), "which no file can hold"),
        ("half a block", with_tensor(tensor(b"t", &[48], Q4_0, 0)), "tensor t has rows of 48, but its type q4_0 stores 32 together"),
        (
            "data beyond the end",
            with_tensor(tensor(b"t", &[65], F32, 0)),
            "tensor t needs 260 bytes at 64, file ends at 320; the download is incomplete",
        ),
        ("offset beyond the end", with_tensor(tensor(b"t", &[1], F32, 320)), "tensor t needs 4 bytes at 384"),
        ("offset that wraps", with_tensor(tensor(b"t", &[8], F32, u64::MAX - 31)), "stands at offset 18446744073709551584"),
        ("offset between", with_tensor(tensor(b"t", &[1], F32, 4)), "offset 4, which is no multiple of the alignment 32"),
        ("offset of an unknown type", with_tensor(tensor(b"t", &[1], 99, 3200)), "needs 0 bytes at 3264"),
        ("tensor without a name", with_tensor(tensor(b"", &[1, 1], F32, 0)), "name of tensor 0"),
        ("tensor twice", two(tensor(b"t", &[1], F32, 0), tensor(b"t", &[1], F32, 32)), "tensor t stands twice"),
    ]
}

#[test]
fn every_lie_is_named() {
    for (lie, bytes, said) in lies() {
        assert!(bytes.len() < 400, "{lie}: a small file is enough");
        let refusal = refusal(&bytes);
        assert!(refusal.contains(said), "{lie}: {refusal}");
        assert!(!refusal.contains(char::is_control), "{lie}: {refusal:?}");
    }
}

/// Virtual memory at its peak: what was allocated, touched or not.
#[cfg(target_os = "linux")]
fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmPeak:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

#[cfg(target_os = "linux")]
#[test]
fn no_lie_takes_memory() {
    // In a process of its own: other tests take memory too.
    const ALONE: &str = "RML_TEST_ALONE";
    if std::env::var_os(ALONE).is_none() {
        let status = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "hostile::no_lie_takes_memory", "--test-threads=1"])
            .env(ALONE, "1")
            .status()
            .unwrap();
        assert!(status.success());
        return;
    }
    let files = lies();
    let before = peak_bytes();
    for (_, bytes, _) in &files {
        let _ = read(bytes);
    }
    // The smallest lie about a count is 2^30 elements.
    let taken = peak_bytes() - before;
    assert!(taken < 1 << 24, "{taken} bytes");
}

#[test]
fn the_truth_is_read() {
    // The same forgery, honest: what the lies are refused for is the lie.
    let file = Forged {
        version: 2,
        entries: vec![entry(b"k", ARRAY, &array(STRING, 2, &[text(b"a"), text("ß".as_bytes())].concat()))],
        tensors: vec![tensor(b"t", &[32, 2], Q4_0, 0), tensor(b"u", &[1, 1, 1, 1], F32, 64)],
        data: (0..68).collect(),
        ..Forged::default()
    };
    let file = read(&file.bytes()).unwrap();
    assert_eq!(file.version(), Some(2));
    assert_eq!(file.metadata().strings("k").unwrap().unwrap().to_vec(), ["a", "ß"]);
    assert_eq!(file.bytes(file.tensor("t").unwrap()), (0..36).collect::<Vec<u8>>());
    assert_eq!(file.bytes(file.tensor("u").unwrap()), [64, 65, 66, 67]);
}

#[test]
fn texts_that_are_not_utf8_are_read_and_noted() {
    // Two pieces of one character: together valid, apart not.
    let texts = [text(b"a"), text(b"\xc3"), text(b"\x9f"), text(b"b")].concat();
    let file = read(&with_entry(ARRAY, &array(STRING, 4, &texts))).unwrap();
    assert_eq!(file.metadata().strings("k").unwrap().unwrap().to_vec(), ["a", "\u{fffd}", "\u{fffd}", "b"]);
    assert!(file.notes()[0].contains("metadata k holds 2 texts that are not valid UTF-8"), "{:?}", file.notes());
    let file = read(&with_entry(STRING, &text(b"x\xffy"))).unwrap();
    assert_eq!(file.metadata().str("k").unwrap(), Some("x\u{fffd}y"));
    assert_eq!(file.notes().len(), 1);
}

#[test]
fn a_type_that_cannot_be_multiplied_is_shown_and_named_when_used() {
    let file = read(&with_tensor(tensor(b"blk.0.ffn_up.weight", &[32], 31, 0))).unwrap();
    assert_eq!((file.tensors()[0].kind.to_string(), file.tensors()[0].bytes), ("q4_0_4_4".to_owned(), 18));
    let error = file.format(&file.tensors()[0]).unwrap_err().to_string();
    assert!(error.contains("tensor blk.0.ffn_up.weight is stored as q4_0_4_4") && error.contains("take the model in q4_0"), "{error}");

    let file = read(&with_tensor(tensor(b"t", &[7], 99, 0))).unwrap();
    assert_eq!((file.tensors()[0].kind.to_string(), file.bytes(&file.tensors()[0]).len()), ("type 99".to_owned(), 0));
    assert!(file.format(&file.tensors()[0]).unwrap_err().to_string().contains("type 99"));
}

#[test]
fn alignment_of_one_is_allowed() {
    let file = Forged {
        entries: vec![entry(b"general.alignment", U32, &1_u32.to_le_bytes())],
        tensors: vec![tensor(b"t", &[1], F32, 1)],
        data: vec![9; 8],
        ..Forged::default()
    };
    let bytes = file.bytes();
    let file = read(&bytes).unwrap();
    assert!(!file.bytes(&file.tensors()[0]).is_empty());
}

/// Uses everything that a reader of the file would.
fn use_all(bytes: &[u8]) {
    let Ok(file) = read(bytes) else { return };
    for tensor in file.tensors() {
        assert_eq!(file.bytes(tensor).len(), tensor.bytes);
        let _ = file.format(tensor);
        file.release(tensor);
    }
    for (key, value) in file.metadata().iter() {
        assert_eq!(file.metadata().get(key).map(|found| std::ptr::eq(found, value)), Some(true));
    }
    if let Ok(config) = Config::from_gguf(&file) {
        let _ = Tensors::new(&file, &config);
    }
}

/// A change to a file: where, as a share of its length, and what stands there then.
fn change() -> impl Strategy<Value = (f64, Vec<u8>)> {
    let extremes = [0, 1, 2, 7, 31, 32, 1 << 30, 1 << 32, 1 << 61, 1 << 62, 1 << 63, u64::MAX - 31, u64::MAX];
    let what = prop_oneof![
        any::<u8>().prop_map(|b| vec![b]),
        proptest::sample::select(extremes.to_vec()).prop_map(|n| n.to_le_bytes().to_vec()),
        any::<u32>().prop_map(|n| n.to_le_bytes().to_vec()),
        (0_u32..14).prop_map(|n| n.to_le_bytes().to_vec()),
    ];
    (0.0..1.0, what)
}

fn changed(mut bytes: Vec<u8>, changes: &[(f64, Vec<u8>)], keep: f64) -> Vec<u8> {
    for (place, what) in changes {
        let at = (place * bytes.len() as f64) as usize;
        let n = what.len().min(bytes.len() - at);
        bytes[at..at + n].copy_from_slice(&what[..n]);
    }
    bytes.truncate((keep * bytes.len() as f64) as usize);
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_change_to_a_file_makes_reading_panic(changes in prop::collection::vec(change(), 1..5), cut in prop_oneof![4 => Just(1.0), 1 => 0.0..1.0]) {
        use_all(&changed(EVERY_TYPE.to_vec(), &changes, cut));
        use_all(&changed(crate::config::tiny(&[]), &changes, cut));
    }

    #[test]
    fn no_bytes_after_the_header_make_reading_panic(bytes in prop::collection::vec(prop_oneof![3 => Just(0_u8), 1 => 0_u8..14, 1 => any::<u8>()], 0..200)) {
        use_all(&[b"GGUF\x03\0\0\0", &bytes[..]].concat());
    }
}
