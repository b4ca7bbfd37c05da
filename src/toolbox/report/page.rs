//! The page: a table for each operation, a line a shape, a column a backend, a bar for each number.

use std::fmt::Write;

use super::results::{Measurement, Work};
use crate::toolbox::machine::machine;
use crate::toolbox::plot::{STYLE, colour, escaped};

/// What the page has beside the colours of [`STYLE`].
const LAYOUT: &str = "\
body{margin:0;font:14px/1.45 system-ui,sans-serif;color:#1b1f24;background:#ffffff}\
main{max-width:1100px;margin:0 auto;padding:24px 20px 60px}\
h1{font-size:22px;margin:0 0 4px}h2{font-size:17px;margin:34px 0 2px}p{margin:0 0 10px;color:#59636e}\
nav a{margin-right:12px}a{color:#2f6fc9}.wide{overflow-x:auto}\
table{border-collapse:collapse;font-variant-numeric:tabular-nums}\
th,td{text-align:left;padding:5px 18px 5px 0;border-bottom:1px solid #d8dee4;white-space:nowrap;vertical-align:top}\
td:first-child{font-family:ui-monospace,monospace;font-size:13px}\
.best{font-weight:700}.time{color:#59636e;font-weight:400;font-size:12px}svg{display:block;margin-top:3px}\
@media(prefers-color-scheme:dark){body{color:#e6edf3;background:#0d1117}p,.time{color:#9da7b1}a{color:#6ea8fe}\
th,td{border-color:#30363d}}";

/// Length of the longest bar of a line.
const BAR: f64 = 110.0;

/// All results on one page that needs nothing else.
pub(super) fn html(results: &[Measurement]) -> String {
    let operations = distinct(results.iter().map(|r| r.operation.as_str()));
    let mut backends = distinct(results.iter().map(|r| r.backend.as_str()));
    // The same column and colour everywhere; what all are compared with comes first.
    backends.sort_by_key(|name| (*name != "ref", *name));
    let mut body = String::new();
    let links = operations.iter().map(|operation| format!("<a href=\"#{0}\">{0}</a>", escaped(operation))).collect::<String>();
    let _ = writeln!(body, "<nav>{links}</nav>");
    for operation in &operations {
        let own: Vec<_> = results.iter().filter(|r| r.operation == *operation).collect();
        section(operation, &own, &backends, &mut body);
    }
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
<meta name=\"color-scheme\" content=\"light dark\"><title>rml: kernels measured</title>\n<style>{STYLE}{LAYOUT}</style></head>\n\
<body><main><h1>Kernels measured</h1>\n<p>Rates, and beside them times of one call; where a rate has no unit, numbers are counted. Longer bars are better; within a \
line they share a scale, and the best is bold.</p>\n<p>Page made with rml {} on {}.</p>\n{body}</main></body></html>\n",
        env!("CARGO_PKG_VERSION"),
        escaped(&machine())
    )
}

fn distinct<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut all = Vec::new();
    names.for_each(|name| {
        if !all.contains(&name) {
            all.push(name);
        }
    });
    all
}

fn section(operation: &str, own: &[&Measurement], backends: &[&str], body: &mut String) {
    let columns: Vec<_> = backends.iter().enumerate().filter(|(_, name)| own.iter().any(|r| r.backend == **name)).collect();
    let heads = columns.iter().map(|(_, name)| format!("<th>{}</th>", escaped(name))).collect::<String>();
    let name = escaped(operation);
    let _ = writeln!(body, "<h2 id=\"{name}\">{name}</h2>\n<div class=\"wide\"><table>\n<tr><th>shape</th>{heads}</tr>");
    for shape in distinct(own.iter().map(|r| r.shape.as_str())) {
        let line: Vec<_> = own.iter().filter(|r| r.shape == shape).collect();
        let fastest = line.iter().map(|r| r.ns).fold(f64::INFINITY, f64::min);
        let _ = write!(body, "<tr><td>{}</td>", escaped(shape));
        for (i, name) in &columns {
            match line.iter().find(|r| r.backend == **name) {
                None => body.push_str("<td></td>"),
                Some(r) => cell(r, fastest, line.len() > 1, *i, body),
            }
        }
        body.push_str("</tr>\n");
    }
    body.push_str("</table></div>\n");
}

fn cell(r: &Measurement, fastest: f64, contested: bool, i: usize, body: &mut String) {
    let best = if contested && r.ns <= fastest { " class=\"best\"" } else { "" };
    let length = (fastest / r.ns * BAR).clamp(1.0, BAR);
    let (rate, time) = (rate(r), time(r.ns));
    let number = if rate.is_empty() { time } else { format!("{rate} <span class=\"time\">{time}</span>") };
    let bar = format!(
        "<svg width=\"{BAR}\" height=\"8\" role=\"img\" aria-label=\"{:.0} % of the best\"><rect class=\"{}\" width=\"{length:.1}\" height=\"8\" rx=\"1\"/></svg>",
        fastest / r.ns * 100.0,
        colour(i)
    );
    let _ = write!(body, "<td{best}>{number}{bar}</td>");
}

/// Of bytes, operations, tokens or elements, as the benches count them.
fn rate(r: &Measurement) -> String {
    match r.work {
        None => String::new(),
        Some(Work::Bytes(n)) => scaled(n / r.ns, "B/s"),
        Some(Work::Elements(n)) => match r.operation.as_str() {
            "matmul" | "attend" => scaled(n / r.ns, "OP/s"),
            "decode" => format!("{} tok/s", three(n / r.ns * 1e9)),
            _ => scaled(n / r.ns, "/s"),
        },
    }
}

/// Billions a second, or millions of less than one.
fn scaled(billions: f64, unit: &str) -> String {
    if billions < 1.0 { format!("{} M{unit}", three(billions * 1e3)) } else { format!("{} G{unit}", three(billions)) }
}

fn time(ns: f64) -> String {
    let (value, unit) = match ns {
        ..1e3 => (ns, "ns"),
        ..1e6 => (ns / 1e3, "µs"),
        ..1e9 => (ns / 1e6, "ms"),
        _ => (ns / 1e9, "s"),
    };
    format!("{} {unit}", three(value))
}

/// Three figures, or all before the point.
fn three(x: f64) -> String {
    let decimals = match x {
        ..10.0 => 2,
        ..100.0 => 1,
        _ => 0,
    };
    format!("{x:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(operation: &str, shape: &str, backend: &str, ns: f64, work: Work) -> Measurement {
        Measurement { operation: operation.into(), shape: shape.into(), backend: backend.into(), ns, work: Some(work) }
    }

    #[test]
    fn rates_and_times_have_their_units() {
        let of = |operation, ns, work| rate(&result(operation, "", "", ns, work));
        assert_eq!(of("matmul", 2.0, Work::Bytes(62.0)), "31.0 GB/s");
        assert_eq!(of("matmul", 4.0, Work::Elements(1400.0)), "350 GOP/s");
        assert_eq!(of("decode", 5e6, Work::Elements(1.0)), "200 tok/s");
        assert_eq!(of("add", 100.0, Work::Elements(576.0)), "5.76 G/s");
        assert_eq!(of("softmax", 1e6, Work::Elements(23_060.0)), "23.1 M/s");
        assert_eq!([999.0, 1500.0, 2.5e6, 3e9].map(time), ["999 ns", "1.50 µs", "2.50 ms", "3.00 s"]);
    }

    #[test]
    fn the_best_of_a_line_is_bold_and_its_bar_the_longest() {
        let work = Work::Elements(100.0);
        let page = html(&[result("add", "576", "avx2", 50.0, work), result("add", "576", "ref", 100.0, work)]);
        let line = page.lines().find(|line| line.starts_with("<tr><td>576")).expect("a line");
        let cells: Vec<_> = line.split("<td").skip(2).collect();
        assert!(cells[0].starts_with(">1.00 G/s") && cells[0].contains("width=\"55.0\""), "ref comes first: {line}");
        assert!(cells[1].starts_with(" class=\"best\">2.00 G/s") && cells[1].contains("width=\"110.0\""), "{line}");
    }

    #[test]
    fn what_stands_alone_is_not_the_best_and_the_page_names_the_machine() {
        let page = html(&[result("add", "576", "avx2", 50.0, Work::Elements(100.0))]);
        assert!(!page.contains("class=\"best\"") && page.contains(&escaped(&machine())), "{page}");
    }

    #[test]
    fn names_cannot_break_out_of_their_place() {
        let page = html(&[result("a\"><script>", "</td><b>", "<i>&", 1.0, Work::Bytes(1.0))]);
        for harmful in ["<script>", "<b>", "<i>", "a\">"] {
            assert!(!page.contains(harmful), "{harmful}: {page}");
        }
    }
}
