//! What a picture says of the machine it was made on.

/// The CPU's name where Linux tells it, else its architecture, and the system: `AMD EPYC 9R14, x86_64 linux`.
pub(super) fn machine() -> String {
    named(&std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default())
}

fn named(cpuinfo: &str) -> String {
    let kind = format!("{} {}", std::env::consts::ARCH, std::env::consts::OS);
    let name = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    match name.map(|(_, name)| name.trim()).filter(|name| !name.is_empty()) {
        Some(name) => format!("{name}, {kind}"),
        None => kind,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_is_named_where_the_system_names_it() {
        assert!(named("processor\t: 0\nmodel name\t: Quick 9 @ 3 GHz\nmodel name\t: Slow\n").starts_with("Quick 9 @ 3 GHz, "));
        for silent in ["", "model name\t: \n", "processor\t: 0\n"] {
            assert_eq!(named(silent), format!("{} {}", std::env::consts::ARCH, std::env::consts::OS));
        }
    }
}
