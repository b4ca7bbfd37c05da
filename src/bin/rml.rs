//! `rml`: the toolbox. See [`rml::toolbox`].

fn main() -> std::process::ExitCode {
    rml::toolbox::main()
}
