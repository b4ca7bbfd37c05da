//! Output that can do no harm to a terminal.

use std::borrow::Cow;
use std::fmt;
use std::io::{self, IsTerminal, Write};

/// One line on standard error. Where that is closed there is nobody to tell.
pub(crate) fn note(text: &str) {
    Screen::stdout().note(text);
}

/// Text as a terminal may see it: control characters other than tab and newline show as symbols, so that neither a model
/// nor a model file can move the cursor, retitle the window or answer for the user.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    let harmful = |c: char| c.is_control() && c != '\n' && c != '\t';
    if !text.contains(harmful) {
        return text.into();
    }
    let symbol = |c: char| match u32::from(c) {
        _ if !harmful(c) => c,
        // Unicode's pictures of the control characters stand in their order.
        n @ 0..0x20 => char::from_u32(0x2400 + n).unwrap_or(char::REPLACEMENT_CHARACTER),
        0x7f => '\u{2421}',
        _ => char::REPLACEMENT_CHARACTER,
    };
    text.chars().map(symbol).collect::<String>().into()
}

/// Standard output and standard error: as they are to a pipe or file, [`printable`] to a terminal.
pub(crate) struct Screen {
    out: Channel,
    err: Channel,
}

struct Channel {
    to: Box<dyn Write>,
    is_terminal: bool,
}

impl Channel {
    fn write(&mut self, text: &str) -> io::Result<()> {
        let text = if self.is_terminal { printable(text) } else { text.into() };
        self.to.write_all(text.as_bytes())?;
        self.to.flush()
    }
}

impl Screen {
    pub(crate) fn stdout() -> Self {
        let (out, err) = (io::stdout(), io::stderr());
        let out = Channel { is_terminal: out.is_terminal(), to: Box::new(out) };
        Screen { out, err: Channel { is_terminal: err.is_terminal(), to: Box::new(err) } }
    }

    /// A screen that is no terminal.
    #[cfg(test)]
    pub(crate) fn of(out: impl Write + 'static, err: impl Write + 'static) -> Self {
        let channel = |to| Channel { to, is_terminal: false };
        Screen { out: channel(Box::new(out)), err: channel(Box::new(err)) }
    }

    /// Whether standard output is a terminal.
    pub(crate) fn is_terminal(&self) -> bool {
        self.out.is_terminal
    }

    /// Writes text and shows it at once.
    pub(crate) fn show(&mut self, text: &str) -> io::Result<()> {
        self.out.write(text)
    }

    /// As [`show`](Self::show), dim on a terminal.
    pub(crate) fn show_dim(&mut self, text: &str) -> io::Result<()> {
        if !self.out.is_terminal {
            return self.show(text);
        }
        self.out.to.write_all(format!("\x1b[2m{}\x1b[22m", printable(text)).as_bytes())?;
        self.out.to.flush()
    }

    /// Writes a line.
    pub(crate) fn line(&mut self, text: impl fmt::Display) -> io::Result<()> {
        self.show(&format!("{text}\n"))
    }

    /// One line on standard error. Where that is closed there is nobody to tell.
    pub(crate) fn note(&mut self, text: &str) {
        let _ = self.err.write(&format!("{text}\n"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_steers_a_terminal_gets_through() {
        assert_eq!(printable("plain\ttext\nüñ 😀"), "plain\ttext\nüñ 😀");
        assert_eq!(printable("\x1b[2J\x07\r\x08\x00\x7f"), "␛[2J␇␍␈␀␡");
        // The one-character forms of ESC [ and of ESC ].
        assert_eq!(printable("\u{9b}2J\u{9d}0;title"), "\u{fffd}2J\u{fffd}0;title");
        for c in (0..=0x10ffff).filter_map(char::from_u32).filter(|c| c.is_control()) {
            let shown = printable(&format!("{c}")).chars().next();
            assert!(shown.is_some_and(|s| s == '\n' || s == '\t' || !s.is_control()), "{c:?} shows as {shown:?}");
        }
    }
}
