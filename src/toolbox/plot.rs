//! Bars in SVG: a group for each thing that was measured, a bar for each that did it, the number behind it.

use std::fmt::Write;

/// Bars that share a scale.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) title: String,
    pub(super) bars: Vec<Bar>,
}

/// One bar.
#[derive(Debug)]
pub(super) struct Bar {
    /// What stands before it, and decides its colour.
    pub(super) label: String,
    pub(super) value: f64,
    /// What stands behind it: the value with its unit, and perhaps more.
    pub(super) number: String,
}

/// Colours that tell bars apart on white and on black alike, and what the rest takes. Neighbours differ in lightness too.
pub(super) const STYLE: &str = "\
.page{background:#ffffff}text,.ink{fill:#1b1f24}.quiet{fill:#59636e}.axis{stroke:#8b949e}\
.c0{fill:#3b7dd8}.c1{fill:#e0862d}.c2{fill:#2f9e6e}.c3{fill:#a463c4}.c4{fill:#d05353}.c5{fill:#7d8590}\
@media(prefers-color-scheme:dark){.page{background:#0d1117}text,.ink{fill:#e6edf3}.quiet{fill:#9da7b1}}";

const WIDTH: usize = 760;
const MARGIN: usize = 20;
const BAR: usize = 20;
const ROW: usize = 28;
/// A character of the labels' font, on average and a little more.
const CHARACTER: usize = 8;
/// Room behind the longest bar for its number.
const NUMBER: usize = 170;

/// A colour's class, by the place of a label among all.
pub(super) fn colour(i: usize) -> String {
    format!("c{}", i.min(5))
}

/// Text as XML and HTML take it.
pub(super) fn escaped(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut out, c| {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
        out
    })
}

/// A whole file: a title, lines below it, and the groups.
pub(super) fn chart(title: &str, subtitles: &[String], groups: &[Group]) -> String {
    let mut labels: Vec<&str> = Vec::new();
    for bar in groups.iter().flat_map(|group| &group.bars) {
        if !labels.contains(&bar.label.as_str()) {
            labels.push(&bar.label);
        }
    }
    let widest = labels.iter().map(|label| label.chars().count()).max().unwrap_or(0);
    let left = MARGIN + (widest * CHARACTER).clamp(40, 280) + 10;
    let longest = WIDTH - left - NUMBER;
    let mut y = 54;
    let mut body = String::new();
    for line in subtitles {
        let _ = writeln!(body, r#"<text class="quiet" x="{MARGIN}" y="{y}">{}</text>"#, escaped(line));
        y += 20;
    }
    y += 10;
    for group in groups {
        let largest = group.bars.iter().map(|bar| bar.value).fold(f64::MIN_POSITIVE, f64::max);
        let _ = writeln!(body, r#"<text x="{MARGIN}" y="{y}" font-weight="600">{}</text>"#, escaped(&group.title));
        y += 12;
        let top = y;
        for bar in &group.bars {
            // Where there is something, there is something to be seen.
            let length = (bar.value / largest * longest as f64).max(1.0);
            let class = colour(labels.iter().position(|label| *label == bar.label).unwrap_or(0));
            let (middle, after) = (y + BAR / 2 + 9, left as f64 + length + 8.0);
            let label = escaped(&bar.label);
            let _ = writeln!(body, r#"<text x="{}" y="{middle}" text-anchor="end">{label}</text>"#, left - 10);
            let _ = writeln!(body, r#"<rect class="{class}" x="{left}" y="{}" width="{length:.1}" height="{BAR}" rx="2"/>"#, y + 4);
            let _ = writeln!(body, r#"<text x="{after:.1}" y="{middle}">{}</text>"#, escaped(&bar.number));
            y += ROW;
        }
        let _ = writeln!(body, r#"<line class="axis" x1="{left}" y1="{top}" x2="{left}" y2="{y}"/>"#);
        y += 36;
    }
    let height = y - 16;
    format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" class="page" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" font-family="system-ui,sans-serif" font-size="14">
<title>{0}</title>
<style>{STYLE}</style>
<text x="{MARGIN}" y="32" font-size="18" font-weight="600">{0}</text>
{body}</svg>
"#,
        escaped(title)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bar(label: &str, value: f64) -> Bar {
        Bar { label: label.into(), value, number: format!("{value}") }
    }

    #[test]
    fn lengths_are_in_proportion_and_colours_follow_labels() {
        let groups = [
            Group { title: "a".into(), bars: vec![bar("x", 50.0), bar("y", 100.0)] },
            Group { title: "b".into(), bars: vec![bar("y", 3.0)] },
        ];
        let svg = chart("title", &[], &groups);
        let rects: Vec<_> = svg.lines().filter(|line| line.starts_with("<rect")).collect();
        let width =
            |line: &str| line.split("width=\"").nth(1).and_then(|rest| rest.split('"').next()?.parse::<f64>().ok()).expect("a width");
        assert_eq!(rects.len(), 3);
        assert!((width(rects[0]) * 2.0 - width(rects[1])).abs() < 0.2 && width(rects[1]) == width(rects[2]), "{rects:?}");
        assert!(rects[0].contains("c0") && rects[1].contains("c1") && rects[2].contains("c1"), "{rects:?}");
    }

    #[test]
    fn names_cannot_break_out_of_their_place() {
        let svg = chart(
            "<b>&\"'",
            &["\u{1b}[2J<b>".into()],
            &[Group { title: "</text>".into(), bars: vec![bar("<script>", f64::MIN_POSITIVE)] }],
        );
        for harmful in ["<b>", "<script>", "\u{1b}"] {
            assert!(!svg.contains(harmful), "{svg}");
        }
        assert!(svg.contains("&lt;b&gt;&amp;&quot;&#39;") && svg.contains(">&lt;/text&gt;</text>"), "{svg}");
    }
}
