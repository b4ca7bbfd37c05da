//! The toolbox's answers, as text and as JSON.

use serde_json::Value;

use crate::{model, rml, stderr, stdout, success};

/// The documents that a command prints with `--json`.
fn documents(arguments: &[&str]) -> Vec<Value> {
    let output = success(rml(arguments).arg("--json"));
    stdout(&output).lines().map(|line| serde_json::from_str(line).expect("a document a line")).collect()
}

fn document(arguments: &[&str]) -> Value {
    let mut all = documents(arguments);
    assert_eq!(all.len(), 1);
    all.remove(0)
}

fn tiny() -> String {
    model().to_str().expect("UTF-8").to_owned()
}

#[test]
fn backends_lists_the_reference_and_the_choice() {
    let alone = document(&["backends"]);
    let names: Vec<_> = alone["backends"].as_array().expect("a list").iter().map(|b| b["name"].as_str().expect("a name")).collect();
    assert_eq!(names[0], "ref", "the lowest rank comes first");
    assert!(alone["backends"][0]["rank"] == 0 && alone["backends"][0]["refusal"].is_null() && alone["cpu"].is_string());
    assert!(alone.get("choice").is_none());

    let model = tiny();
    let chosen = document(&["backends", &model]);
    let choices = chosen["choice"].as_array().expect("a list");
    assert!(choices.iter().any(|c| c["format"] == "q4_1" && c["class"] == "decode"));
    for choice in choices {
        let kernel = &choice["kernel"];
        let candidates = choice["candidates"].as_array().expect("a list");
        assert!(candidates.iter().any(|c| &c["kernel"] == kernel), "{choice}");
    }
    let text = stdout(&success(&mut rml(&["backends", &model])));
    assert!(text.contains("can run here") && text.contains("* ") && text.contains("q4_1"), "{text}");
    let forced = document(&["backends", &model, "--backend", "ref"]);
    assert!(forced["choice"].as_array().expect("a list").iter().all(|c| c["kernel"].as_str().expect("a name").starts_with("ref:")));
}

#[test]
fn backends_sit_the_exam_when_asked() {
    let checked = document(&["backends", "--check"]);
    let backends = checked["backends"].as_array().expect("a list");
    for backend in backends {
        let exam = backend.get("exam");
        assert_eq!(exam.is_some(), backend["refusal"].is_null(), "those that run, and no others: {backend}");
        assert!(exam.is_none_or(|e| e["cases"].is_u64() && e["failures"] == serde_json::json!([])), "{backend}");
    }
    let cases = backends[0]["exam"]["cases"].as_u64().expect("the reference runs anywhere");
    assert!(cases > 5000, "{cases}");
    let text = stdout(&success(rml(&["backends", "--check"]).env("RML_DISABLE", "avx2")));
    assert!(text.lines().any(|line| line == format!("ref: {cases} cases hold")), "{text}");
}

#[test]
fn bench_prints_a_line_a_test() {
    let lines = documents(&["bench", &tiny(), "-p", "16,32", "-n", "4", "-d", "0,8", "-t", "1,2", "-r", "3", "--backend", "ref"]);
    assert_eq!(lines.len(), 2 * 2 * 3, "threads, depths, tests");
    let names: Vec<_> = lines[..3].iter().map(|l| l["test"].as_str().expect("a name")).collect();
    assert_eq!(names, ["pp16", "pp32", "tg4"]);
    for line in &lines {
        let rates: Vec<f64> = line["tok_s"].as_array().expect("a list").iter().map(|r| r.as_f64().expect("a rate")).collect();
        let median = line["tok_s_median"].as_f64().expect("a rate");
        assert!(rates.len() == 3 && rates.iter().all(|r| r.is_finite() && *r > 0.0) && rates.contains(&median));
        assert_eq!(line["backend"], "ref");
    }
    assert_eq!((&lines[3]["depth"], &lines[6]["threads"]), (&Value::from(8), &Value::from(2)));
    assert_eq!(documents(&["bench", &tiny(), "-p", "0", "-n", "2", "-r", "1"]).len(), 1, "0 leaves a test out");
}

/// Every backend that can run here, in every test, and their bars in the file.
#[test]
fn bench_compares_and_draws_the_backends_that_can_run() {
    let folder = tempfile::tempdir().expect("a folder");
    let svg = folder.path().join("compare.svg");
    let listed = document(&["backends"]);
    let runnable = listed["backends"].as_array().expect("a list").iter().filter(|b| b["refusal"].is_null());
    let runnable: Vec<_> = runnable.map(|b| b["name"].as_str().expect("a name")).collect();
    let tiny = tiny();
    let arguments = ["bench", &tiny, "--compare", "-p", "16", "-n", "4", "-r", "2", "--plot", svg.to_str().expect("UTF-8")];
    let lines = documents(&arguments);
    let of = |test: &str| lines.iter().filter(|l| l["test"] == test).collect::<Vec<_>>();
    for lines in [of("pp16"), of("tg4")] {
        assert_eq!(lines.iter().map(|l| l["backend"].as_str().expect("a name")).collect::<Vec<_>>(), runnable);
        assert!(lines.iter().all(|l| l["tok_s"].as_array().expect("a list").len() == 2));
        let best: Vec<_> = lines.iter().map(|l| l["of_best"].as_f64().expect("a ratio")).collect();
        assert!(best.iter().all(|share| 0.0 < *share && *share <= 1.0) && best.contains(&1.0), "{best:?}");
    }
    let drawn = std::fs::read_to_string(&svg).expect("the picture");
    assert_eq!(drawn.matches("<rect class=").count(), 2 * runnable.len());
    assert!(drawn.starts_with("<svg ") && runnable.iter().all(|name| drawn.contains(&format!(">{name}</text>"))), "{drawn}");
    let chosen = documents(&["bench", &tiny, "--compare", "-p", "0", "-n", "2", "-r", "1", "--backend", "auto,add=ref,ref"]);
    let names: Vec<_> = chosen.iter().map(|l| l["backend"].as_str().expect("a name")).collect();
    assert_eq!(names, ["auto,add=ref", "ref"]);
    let text = stdout(&success(&mut rml(&["bench", &tiny, "--compare", "-p", "0", "-n", "2", "-r", "1", "--backend", "ref,auto"])));
    assert!(text.lines().nth(2).is_some_and(|line| line.contains(" x ref")), "{text}");
}

#[test]
fn report_makes_a_page_of_what_criterion_left() {
    let folder = tempfile::tempdir().expect("a folder");
    let new = folder.path().join("criterion/add/576_ref/new");
    std::fs::create_dir_all(&new).expect("folders");
    std::fs::write(new.join("benchmark.json"), r#"{"full_id":"add/576/ref","throughput":{"Elements":576}}"#).expect("a file");
    std::fs::write(new.join("estimates.json"), r#"{"mean":{"point_estimate":96.0},"slope":null}"#).expect("a file");
    let path = |name: &str| folder.path().join(name).to_str().expect("UTF-8").to_owned();
    let (criterion, page) = (path("criterion"), path("page.html"));
    assert_eq!(document(&["report", &criterion, &page])["results"], 1);
    let html = std::fs::read_to_string(&page).expect("the page");
    assert!(html.contains("<tr><td>576</td><td>6.00 G/s"), "{html}");
    for (arguments, reason) in [
        ([&criterion, &page], "there already"),
        ([&path("nowhere"), &path("other.html")], "nowhere"),
        ([&path("criterion/add/576_ref/new"), &path("other.html")], "cargo bench"),
    ] {
        let output = rml(&["report", arguments[0], arguments[1]]).output().expect("it ran");
        assert!(!output.status.success() && stderr(&output).contains(reason), "{}", stderr(&output));
    }
    success(&mut rml(&["report", &criterion, &page, "--force"]));
}

/// As a failure says: its words pick the cases, and words that pick none are an error.
#[test]
fn a_part_of_the_exam_is_picked_by_words() {
    let picked = success(rml(&["backends", "--check", "--json"]).env("RML_EXAM", "ref add n=1 fill=gaussian"));
    let checked: Value = serde_json::from_str(&stdout(&picked)).expect("a document");
    assert_eq!(checked["backends"][0]["exam"]["cases"], 1, "{checked}");
    let none = rml(&["backends", "--check"]).env("RML_EXAM", "no such words").output().expect("it ran");
    assert!(none.status.code() == Some(2) && stderr(&none).contains("no such words"), "{}", stderr(&none));
}

/// The file holds each position's row, and the table its best.
#[test]
fn logits_agree_with_themselves_however_they_are_asked_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("rows.f32");
    let ids: Vec<String> = (0..70).map(|i| (i * 37 % 269).to_string()).collect();
    let (tokens, model) = (ids.join(","), tiny());
    let all = document(&["logits", &model, "--tokens", &tokens, "--all", "--top", "3", "--out", path.to_str().expect("UTF-8")]);
    assert_eq!((&all["vocab"], all["positions"].as_array().expect("a list").len()), (&Value::from(269), 70));
    let bytes = std::fs::read(&path).expect("the file");
    let rows: Vec<f32> = bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().expect("four bytes"))).collect();
    assert_eq!(rows.len(), 70 * 269);
    for (row, position) in rows.chunks(269).zip(all["positions"].as_array().expect("a list")) {
        let best = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let top = &position["top"][0];
        assert_eq!(row[top[0].as_u64().expect("an id") as usize], best);
        assert_eq!(top[1].as_f64().expect("a logit") as f32, best);
    }
    let last = document(&["logits", &model, "--tokens", &tokens, "--top", "3", "--threads", "2"]);
    assert_eq!(last["positions"][0], all["positions"][69]);
}

/// Of equal logits each of n tokens has the perplexity n; a random model is near that, and a text of its own making is not.
#[test]
fn perplexity_scores_the_second_half_of_each_chunk() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("text.txt");
    std::fs::write(&path, "the rain in Spain stays mainly in the plain. ".repeat(20)).expect("a file");
    let score = document(&["perplexity", &tiny(), "--file", path.to_str().expect("UTF-8"), "--ctx", "64"]);
    let (tokens, nll, perplexity) =
        (score["tokens"].as_u64().unwrap(), score["nll"].as_f64().unwrap(), score["perplexity"].as_f64().unwrap());
    assert!(tokens > 0 && tokens.is_multiple_of(31), "31 of 64 are scored: {tokens}");
    assert!((nll.exp() - perplexity).abs() < 1e-9 * perplexity && perplexity > 1.0, "{score}");
    let in_bytes = document(&["perplexity", &tiny(), "--file", path.to_str().expect("UTF-8"), "--ctx", "64", "--kv", "i8"]);
    let share = in_bytes["perplexity"].as_f64().unwrap() / perplexity - 1.0;
    // A random model of two layers says whether the flag arrives and scales are applied, not how well 8 bits serve a real one.
    assert!(share != 0.0 && share.abs() <= 0.05, "a cache of 8 bits is near one of f16: {in_bytes} {score}");
}

#[test]
fn inspect_shows_metadata_and_tensors() {
    let shown = document(&["inspect", &tiny()]);
    assert_eq!(shown["architecture"], "llama");
    assert!(shown["metadata"]["general.architecture"] == "llama" && shown["memory"].is_object());
    assert!(shown["tensors"].as_array().expect("a list").iter().any(|t| t["name"] == "token_embd.weight"));
    let text = stdout(&success(&mut rml(&["inspect", &tiny()])));
    assert!(["token_embd.weight", "KV cache in f16", "KV cache in f32", "KV cache in i8"].iter().all(|part| text.contains(part)), "{text}");
}

#[test]
fn text_goes_to_ids_and_back() {
    let tokens = document(&["tokenize", &tiny(), "the rain", "--no-special"]);
    let pieces: Vec<_> = tokens["pieces"].as_array().expect("a list").iter().map(|p| p.as_str().expect("a text")).collect();
    assert_eq!(pieces.concat(), "the rain");
    let ids: Vec<String> = tokens["ids"].as_array().expect("a list").iter().map(Value::to_string).collect();
    assert_eq!(document(&["detokenize", &tiny(), "--tokens", &ids.join(",")])["text"], "the rain");
    assert_eq!(stdout(&success(&mut rml(&["tokenize", &tiny(), "the rain", "--no-special"]))).trim(), ids.join(" "));
    assert_eq!(stdout(&success(rml(&["tokenize", &tiny(), "--no-special"]).write_stdin("the rain"))).trim(), ids.join(" "));
    let control = document(&["tokenize", &tiny(), "<|im_end|>", "--no-special", "--parse-special"]);
    assert_eq!(control["ids"], serde_json::json!([2]));
    assert!(document(&["tokenize", &tiny(), "<|im_end|>", "--no-special"])["ids"].as_array().expect("a list").len() > 1);
}

#[test]
fn template_renders_a_conversation() {
    let folder = tempfile::tempdir().expect("a folder");
    let messages = folder.path().join("messages.json");
    std::fs::write(&messages, r#"[{"role": "user", "content": "hi"}]"#).expect("a file");
    let messages = messages.to_str().expect("UTF-8");
    let prompt = document(&["template", &tiny(), "--messages", messages])["prompt"].clone();
    assert_eq!(prompt, "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
    let jinja = folder.path().join("own.jinja");
    std::fs::write(&jinja, "{{ bos_token }}{{ messages[0].content }}{{ strftime_now('%Y') }}{% if add_generation_prompt %}!{% endif %}")
        .expect("a file");
    let arguments = [
        "template",
        jinja.to_str().expect("UTF-8"),
        "--messages",
        messages,
        "--bos",
        "<s>",
        "--now",
        "2026-07-04T09:30:00",
        "--no-generation-prompt",
    ];
    assert_eq!(document(&arguments)["prompt"], "<s>hi2026");
    assert_eq!(stdout(&success(&mut rml(&arguments))), "<s>hi2026", "as text, to the byte");
}

/// The lines of `RML_TRACE=dispatch` that a command prints on standard error.
fn dispatches(arguments: &[&str]) -> Vec<String> {
    let output = success(rml(arguments).env("RML_TRACE", "dispatch"));
    stderr(&output).lines().map(|line| line.strip_prefix("dispatch: ").expect("nothing but the trace").to_owned()).collect()
}

#[test]
fn the_trace_names_each_kernel_once() {
    let tiny = tiny();
    let bench = ["bench", &tiny, "-p", "16", "-n", "2", "-r", "2", "-t", "2", "--backend", "ref"];
    let lines = dispatches(&bench);
    let mut sorted = lines.clone();
    sorted.sort_unstable();
    sorted.dedup();
    assert_eq!(sorted.len(), lines.len(), "each line once: {lines:#?}");
    // Width 64, feed-forward part 96, four heads of 16 and one for keys and values, a head of 269 in Q8_0 for one row alone.
    for line in [
        "embed_row q4_1 k=64 m=1: ref",
        "rms_norm k=64 m=1: ref",
        "rms_norm k=64 m>8: ref",
        "quantize k=96 m>8: ref",
        "matmul q4_1 n=96 k=64 m=1: ref:q4_1·q8:1x1 of ref",
        "matmul q4_1 n=96 k=64 m>8: ref:q4_1·q8:1x1 of ref",
        "matmul q4_1 n=64 k=96 m>8: ref:q4_1·q8:1x1 of ref",
        "matmul q8_0 n=269 k=64 m=1: ref:q8_0·q8:1x1 of ref",
        "rope_pairs n=4 k=16 m>8: ref",
        "rope_pairs n=1 k=16 m=1: ref",
        "attend n=4 k=16 m=1: ref",
        "silu_mul k=96 m>8: ref",
        "add k=64 m=1: ref",
    ] {
        assert!(lines.iter().any(|l| l == line), "{line} is not among {lines:#?}");
    }
    assert!(!lines.iter().any(|l| l.starts_with("matmul q8_0") && l.contains("m>8")), "the head runs for the last row alone");
    let replaced = dispatches(&["logits", &tiny, "--tokens", "1,2,3", "--backend", "auto,add=ref"]);
    assert!(replaced.iter().any(|l| l == "add k=64 m=2..8: ref"), "{replaced:#?}");
}

/// What is printed does not change, nor is anything added where nothing was asked for.
#[test]
fn the_trace_leaves_standard_output_alone() {
    let tiny = tiny();
    let logits = ["logits", &tiny, "--tokens", "1,2,3", "--json"];
    let (plain, traced) = (success(&mut rml(&logits)), success(rml(&logits).env("RML_TRACE", "dispatch")));
    assert_eq!((stdout(&plain), stderr(&plain)), (stdout(&traced), String::new()));
    assert!(stderr(&traced).lines().count() > 10);
}
