//! `rml backends`: who can run here, who cannot and why, and what a model takes.

use serde_json::{Value, json};

use super::Output;
use super::target::Target;
use crate::exec::choice::{Choice, FormatChoice, Measured};
use crate::model::registry;
use crate::program::Halt;

/// List the backends, and with a model what each makes of its formats
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Measure with this model, and show what it takes
    model: Option<String>,

    #[command(flatten)]
    target: Target,
}

impl Args {
    pub(super) fn run(&self, out: &mut Output) -> Result<(), Halt> {
        let registry = registry()?;
        let model = self.model.as_ref().map(|model| self.target.load(model)).transpose()?;
        let cpu: Vec<_> = registry.cpu().iter().collect();
        let cpu = format!("{} ({})", std::env::consts::ARCH, cpu.join(" "));
        let backends = registry.backends();
        let document = || {
            let listed = backends
                .iter()
                .map(|r| json!({"name": r.backend.name(), "rank": r.backend.rank(), "refusal": r.refusal.as_ref().map(|r| &r.0)}));
            let mut document = json!({"cpu": cpu, "backends": listed.collect::<Vec<_>>()});
            if let Some(model) = &model {
                document["choice"] = model.choice().formats().iter().flat_map(|f| [decode(f), prefill(f)]).collect();
                document["slots"] =
                    slots(model.choice()).map(|(slot, owner)| (slot.to_owned(), owner.into())).collect::<serde_json::Map<_, _>>().into();
            }
            document
        };
        let text = || {
            let mut text = format!("cpu: {cpu}\n");
            for r in backends {
                let state = r.refusal.as_ref().map_or("can run here".to_owned(), |reason| format!("cannot run here: {reason}"));
                text += &format!("{:12} rank {:2}  {state}\n", r.backend.name(), r.backend.rank());
            }
            if let Some(model) = &model {
                text += &table(model.choice());
            }
            text
        };
        out.either(document, text)
    }
}

fn decode(choice: &FormatChoice) -> Value {
    class(choice, "decode", "gb_s", |c| c.decode)
}

fn prefill(choice: &FormatChoice) -> Value {
    class(choice, "prefill", "gop_s", |c| c.prefill)
}

fn class(choice: &FormatChoice, class: &str, unit: &str, measured: impl Fn(&crate::exec::choice::Candidate) -> Option<Measured>) -> Value {
    let candidates = choice.candidates.iter().map(|c| {
        let m = measured(c);
        json!({
            "kernel": c.kernel.id(),
            "us": m.map(|m| m.us),
            unit: m.map(|m| m.rate),
            "refusal": c.refusal.as_ref().map(|r| &r.0),
        })
    });
    json!({"format": choice.format.name(), "class": class, "kernel": choice.kernel.id(), "candidates": candidates.collect::<Vec<_>>()})
}

/// The operations that are not products, and whose each is.
fn slots(choice: &Choice) -> impl Iterator<Item = (&'static str, &'static str)> {
    let t = choice.table();
    [
        ("embed_row", t.embed_row.owner()),
        ("rms_norm", t.rms_norm.owner()),
        ("quantize", t.quantize.owner()),
        ("rope_pairs", t.rope_pairs.owner()),
        ("rope_halves", t.rope_halves.owner()),
        ("attend", t.attend.owner()),
        ("softmax", t.softmax.owner()),
        ("silu_mul", t.silu_mul.owner()),
        ("gelu_mul", t.gelu_mul.owner()),
        ("add", t.add.owner()),
    ]
    .into_iter()
}

fn table(choice: &Choice) -> String {
    let mut text = String::new();
    for format in choice.formats() {
        text += &format!("\n{}\n", format.format.name());
        for c in &format.candidates {
            let mark = if c.kernel.id() == format.kernel.id() { '*' } else { ' ' };
            let times = match (c.decode, c.prefill, &c.refusal) {
                (_, _, Some(reason)) => reason.to_string(),
                (Some(d), Some(p), _) => {
                    format!("decode {:7.1} us {:6.2} GB/s   prefill {:8.1} us {:7.1} GOP/s", d.us, d.rate, p.us, p.rate)
                }
                (Some(d), None, _) => format!("decode {:7.1} us {:6.2} GB/s   (too slow to go on)", d.us, d.rate),
                (None, ..) => "not measured".into(),
            };
            text += &format!("{mark} {:28} {times}\n", c.kernel.id());
        }
    }
    text += "\nother operations: ";
    text += &slots(choice).map(|(slot, owner)| format!("{slot} {owner}")).collect::<Vec<_>>().join(", ");
    text
}
