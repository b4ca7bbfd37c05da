//! `rml-chat`: a conversation with a model. See [`rml::chat`].

fn main() -> std::process::ExitCode {
    rml::chat::main()
}
