//! Sessions in files: what comes back, and what is refused.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use rml::decode::KvType;
use rml::{Error, LoadOptions, Model, Session, SessionOptions};
use sha2::{Digest, Sha256};

use crate::{bits, fixture, model, options, reply, session, tokens};

/// Where the header has the counts of bytes and tokens, and where it ends.
const COUNTS: [usize; 3] = [56, 64, 72];
const HEADER: usize = 80;

/// A session with some tokens, saved.
fn saved(kv: KvType, path: &Path) -> Session {
    let mut s = session(kv, 100);
    reply(&mut s, &tokens(21, 1), 6);
    s.save(path, b"what was said").expect("a file");
    s
}

fn refusal(s: &mut Session, path: &Path) -> String {
    match s.restore(path) {
        Err(Error::SavedSession { path: named, reason }) if named == path => reason,
        other => panic!("{other:?}"),
    }
}

/// The checksum that belongs to what is before it.
fn sign(bytes: &mut [u8]) {
    let at = bytes.len() - 32;
    let sum = Sha256::digest(&bytes[..at]);
    bytes[at..].copy_from_slice(&sum);
}

#[test]
fn a_restored_session_goes_on_as_if_never_ended() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("session");
    for kv in KvType::ALL {
        let mut s = saved(kv, &path);
        let next = [s.cached(), &tokens(30, 2)].concat();
        let expected = reply(&mut s, &next, 8);
        // Another seed, chunk and size: the first is replaced, the others do not matter.
        let mut other = Session::new(model(), SessionOptions { seed: 77, chunk: 3, ..options(kv, 80) }).expect("a session");
        reply(&mut other, &tokens(40, 5), 3);
        assert_eq!(other.restore(&path).expect("the session"), b"what was said");
        let got = reply(&mut other, &next, 8);
        assert_eq!((got.0, bits(&other)), (expected.0, bits(&s)), "kv {}", kv.name());
        assert_eq!(got.1.reused_tokens, 26, "21 and 5 of the reply were in the cache");
    }
}

#[test]
fn an_empty_session_and_whole_panels() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("session");
    for (kv, n) in KvType::ALL.into_iter().flat_map(|kv| [0, 1, 15, 16, 17, 32].map(|n| (kv, n))) {
        let mut s = session(kv, 40);
        if n > 0 {
            reply(&mut s, &tokens(n, 1), 1);
        }
        s.save(&path, &[]).expect("a file");
        let mut other = session(kv, 40);
        other.restore(&path).expect("the session");
        assert_eq!(other.cached(), s.cached());
        let prompt = tokens(n + 3, 1);
        assert_eq!(reply(&mut other, &prompt, 4).0, reply(&mut s, &prompt, 4).0, "kv {} {n}", kv.name());
        assert_eq!(bits(&other), bits(&s));
    }
}

/// Nothing of tokens that were taken back is in the file: it is that of a session which never had them.
#[test]
fn what_was_forgotten_is_not_saved() {
    let folder = tempfile::tempdir().expect("a folder");
    for kv in KvType::ALL {
        let files = [90, 5].map(|before| {
            let path = folder.path().join(format!("{before}"));
            let mut s = session(kv, 100);
            reply(&mut s, &[tokens(5, 1), tokens(before, 2)].concat(), 1);
            reply(&mut s, &tokens(5, 1), 1);
            s.reseed(4);
            s.save(&path, &[]).expect("a file");
            fs::read(&path).expect("the file")
        });
        assert!(files[0] == files[1], "kv {}", kv.name());
    }
}

#[test]
fn what_does_not_match_is_refused_with_the_reason() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("session");
    drop(saved(KvType::F16, &path));
    let wrong_type = refusal(&mut session(KvType::I8, 100), &path);
    assert!(["f16", "i8", "--kv"].iter().all(|part| wrong_type.contains(part)), "{wrong_type}");
    let too_small = refusal(&mut session(KvType::F16, 25), &path);
    assert!(["26", "25", "--ctx"].iter().all(|part| too_small.contains(part)), "{too_small}");
    session(KvType::F16, 26).restore(&path).expect("just large enough");
    // A model of the same shape and metadata is another one by its weights, of another type by its table.
    let other = Arc::new(Model::load(&fixture("q4_0.gguf"), &LoadOptions::default()).expect("a model"));
    let foreign = refusal(&mut Session::new(&other, options(KvType::F16, 100)).expect("a session"), &path);
    assert!(foreign.contains("another model"), "{foreign}");
    let mut bytes = fs::read(&path).expect("the file");
    bytes[8] = 2;
    fs::write(&path, &bytes).expect("a file");
    let version = refusal(&mut session(KvType::F16, 100), &path);
    assert!(version.contains("version 2") && version.contains("reads 1"), "{version}");
}

#[test]
fn damaged_cut_and_foreign_files_are_refused_and_change_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, broken) = (folder.path().join("session"), folder.path().join("broken"));
    let mut s = saved(KvType::I8, &path);
    let whole = fs::read(&path).expect("the file");
    let cached = s.cached().to_vec();
    let mut refuse = |bytes: &[u8], what: String| {
        fs::write(&broken, bytes).expect("a file");
        let reason = refusal(&mut s, &broken);
        assert_eq!(s.cached(), cached, "{what}");
        reason
    };
    let places = (0..HEADER + 40).chain((HEADER..whole.len()).step_by(997)).chain(whole.len() - 33..whole.len());
    for at in places {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        refuse(&bytes, format!("bit of byte {at}"));
    }
    for len in (0..HEADER + 20).chain((HEADER..whole.len()).step_by(1009)).chain([whole.len() - 1]) {
        let reason = refuse(&whole[..len], format!("cut to {len}"));
        assert!(reason.contains("cut short") || len < 8 && reason.contains("no saved session"), "{len}: {reason}");
    }
    refuse(&[&whole[..], b"x"].concat(), "a byte more".into());
    assert!(refuse(&fs::read(fixture("q4_1.gguf")).expect("a model"), "a model".into()).contains("no saved session"));
    assert!(refuse(b"once upon a time, in a file of no kind", "text".into()).contains("no saved session"));
    assert!(matches!(s.restore(&folder.path().join("missing")), Err(Error::Io { .. })));
    assert!(matches!(s.restore(folder.path()), Err(Error::Io { .. })));
    s.restore(&path).expect("the whole file is as good as ever");
}

/// Counts that no file has, and contents that no session has, under a checksum that is right.
#[test]
fn forged_files_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, forged) = (folder.path().join("session"), folder.path().join("forged"));
    let mut s = saved(KvType::F16, &path);
    let whole = fs::read(&path).expect("the file");
    let mut refuse = |bytes: &mut [u8]| {
        sign(bytes);
        fs::write(&forged, bytes).expect("a file");
        refusal(&mut s, &forged)
    };
    for (at, count) in COUNTS.into_iter().flat_map(|at| [u64::MAX, 1 << 62, 1 << 40, u64::MAX / 4].map(|n| (at, n))) {
        let mut bytes = whole.clone();
        bytes[at..at + 8].copy_from_slice(&count.to_le_bytes());
        refuse(&mut bytes);
    }
    // Bytes are moved from one count to another, so that the length stays right.
    for (from, to, n, size) in [(72, 56, 4, 1), (72, 64, 4, 4), (64, 56, 1, 4), (56, 72, 4, 1)] {
        let mut bytes = whole.clone();
        let mut add = |at: usize, n: i64| {
            let count = i64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
            bytes[at..at + 8].copy_from_slice(&(count + n).to_le_bytes());
        };
        add(from, -n);
        add(to, n * if from == 64 { 4 } else { 1 } / size);
        refuse(&mut bytes);
    }
    let mut bytes = whole.clone();
    let first_token = HEADER + b"what was said".len();
    bytes[first_token..first_token + 4].copy_from_slice(&269_u32.to_le_bytes());
    assert!(refuse(&mut bytes).contains("token 269"));
    let mut bytes = whole.clone();
    bytes[12] = 9;
    assert!(refuse(&mut bytes).contains("of type unknown"));
    let mut same = whole.clone();
    sign(&mut same);
    assert!(same == whole, "the checksum is what this test thinks it is");
}

#[test]
fn a_file_is_replaced_whole_or_not_at_all() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("session");
    let s = saved(KvType::F16, &path);
    s.save(&path, b"again").expect("the file is replaced");
    assert_eq!(session(KvType::F16, 100).restore(&path).expect("the session"), b"again");
    let in_the_way = folder.path().join("folder");
    fs::create_dir(&in_the_way).expect("a folder");
    assert!(matches!(s.save(&in_the_way, &[]), Err(Error::Io { action: "write", .. })));
    assert!(matches!(s.save(&folder.path().join("missing/session"), &[]), Err(Error::Io { action: "write", .. })));
    assert!(matches!(s.save(&path, &vec![0; (64 << 20) + 1]), Err(Error::OutOfRange { .. })));
    let names = fs::read_dir(folder.path()).expect("the folder").map(|e| e.expect("an entry").file_name());
    let mut names: Vec<_> = names.collect();
    names.sort();
    assert_eq!(names, ["folder", "session"], "nothing half written is left");
}
