//! What is said after a reply, and about the model before the first.

use crate::generate::{GenerationStats, SpeculativeStats, StopReason};
use crate::program::{Screen, counted};

/// The statistics of a reply, and why it ended if that was not its natural end.
pub(super) fn after_reply(screen: &mut Screen, stats: &GenerationStats, guessing: Option<&SpeculativeStats>, dropped: usize) {
    if dropped > 0 {
        screen.note(&format!("(the context was full: the oldest {dropped} messages were dropped)"));
    }
    let cut = match stats.stop {
        StopReason::StopId | StopReason::Callback => None,
        StopReason::Limit => Some("cut at --max-tokens"),
        StopReason::ContextFull => Some(
            "cut, since the context is full: /forget takes back the oldest turn, /reset starts over; or start again with a larger --ctx \
             or with --overflow shift",
        ),
        StopReason::Interrupted => Some("interrupted"),
    };
    if let Some(why) = cut {
        screen.note(&format!("(the reply was {why})"));
    }
    screen.note(&format!("[{}{}]", statistics(stats), guessing.map(guesses).unwrap_or_default()));
}

/// `prompt 34 tokens (21 cached), prefill 812.3 tok/s; reply 57 tokens, decode 92.1 tok/s`: what was run of the prompt, and the
/// rates of both.
fn statistics(stats: &GenerationStats) -> String {
    let GenerationStats { prompt_tokens, reused_tokens, generated_tokens, prefill_seconds, decode_seconds, .. } = *stats;
    let prefill = rate(prompt_tokens, prefill_seconds);
    let decode = rate(generated_tokens, decode_seconds);
    let (prompt, reply) = (counted(prompt_tokens, "token"), counted(generated_tokens, "token"));
    format!("prompt {prompt} ({reused_tokens} cached), prefill {prefill}; reply {reply}, decode {decode}")
}

/// `; 20 rounds, 45 drafted, 36 accepted (80 %), 2.80 tokens a round`.
fn guesses(stats: &SpeculativeStats) -> String {
    let SpeculativeStats { rounds, drafted, accepted, .. } = *stats;
    let share = if drafted == 0 { String::new() } else { format!(" ({:.0} %)", 100.0 * accepted as f64 / drafted as f64) };
    let rounds = counted(rounds, "round");
    format!("; {rounds}, {drafted} drafted, {accepted} accepted{share}, {:.2} tokens a round", stats.tokens_a_round())
}

fn rate(tokens: usize, seconds: f64) -> String {
    if tokens == 0 || seconds <= 0.0 { "- tok/s".into() } else { format!("{:.1} tok/s", tokens as f64 / seconds) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_tokens_over_seconds() {
        let stats = GenerationStats {
            prompt_tokens: 30,
            reused_tokens: 4,
            generated_tokens: 10,
            prefill_seconds: 0.5,
            decode_seconds: 4.0,
            stop: StopReason::StopId,
        };
        assert_eq!(statistics(&stats), "prompt 30 tokens (4 cached), prefill 60.0 tok/s; reply 10 tokens, decode 2.5 tok/s");
        let one = GenerationStats { prompt_tokens: 1, reused_tokens: 0, generated_tokens: 1, ..stats };
        assert_eq!(statistics(&one), "prompt 1 token (0 cached), prefill 2.0 tok/s; reply 1 token, decode 0.2 tok/s");
        let guessing = SpeculativeStats { generation: stats, rounds: 3, drafted: 8, accepted: 6 };
        assert_eq!(guesses(&guessing), "; 3 rounds, 8 drafted, 6 accepted (75 %), 3.00 tokens a round");
        let nothing = GenerationStats { prompt_tokens: 0, generated_tokens: 0, decode_seconds: 0.0, ..stats };
        assert_eq!(statistics(&nothing), "prompt 0 tokens (4 cached), prefill - tok/s; reply 0 tokens, decode - tok/s");
        let guessing = SpeculativeStats { generation: nothing, rounds: 0, drafted: 0, accepted: 0 };
        assert_eq!(guesses(&guessing), "; 0 rounds, 0 drafted, 0 accepted, 0.00 tokens a round");
    }
}
