//! Every backend that is linked, in the order of (rank, name), and what each says of this CPU.

use crate::{Backend, CpuFeatures, KernelTable, Refusal, Registration};

/// A backend and its answer to the probe.
#[derive(Clone)]
pub struct Runnable {
    /// The backend.
    pub backend: &'static dyn Backend,
    /// Why it cannot run here, if it cannot.
    pub refusal: Option<Refusal>,
}

/// The backends of this program on this CPU.
#[derive(Clone)]
pub struct Registry {
    cpu: CpuFeatures,
    backends: Vec<Runnable>,
}

impl Registry {
    /// Every registered backend, probed with `cpu`.
    ///
    /// `inventory` yields link order, so they are sorted by (rank, name).
    pub fn new(cpu: CpuFeatures) -> Self {
        Self::of(cpu, inventory::iter::<Registration>.into_iter().map(|r| r.0))
    }

    /// A registry of just these backends: for tests, and for programs that want to choose.
    ///
    /// A name is one backend's: the first in order keeps it, and the others are refused.
    pub fn of(cpu: CpuFeatures, backends: impl IntoIterator<Item = &'static dyn Backend>) -> Self {
        let mut backends: Vec<_> = backends.into_iter().map(|backend| Runnable { backend, refusal: backend.probe(&cpu).err() }).collect();
        backends.sort_by_key(|r| (r.backend.rank(), r.backend.name()));
        let mut taken: Vec<&str> = Vec::with_capacity(backends.len());
        for r in &mut backends {
            let name = r.backend.name();
            let namesake = taken.contains(&name).then(|| format!("{name} is another backend's name, or it is registered twice"));
            if let Some(fault) = namesake.or_else(|| unfit(name)) {
                r.refusal = Some(Refusal::new(fault));
            }
            taken.push(name);
        }
        Registry { cpu, backends }
    }

    /// The features the backends were probed with.
    pub fn cpu(&self) -> &CpuFeatures {
        &self.cpu
    }

    /// All backends, lowest rank first.
    pub fn backends(&self) -> &[Runnable] {
        &self.backends
    }

    /// The reference overlaid with every backend that can run, in order of rank.
    pub fn table(&self) -> KernelTable {
        let mut table = KernelTable::reference();
        for r in self.backends.iter().filter(|r| r.refusal.is_none()) {
            r.backend.install(&self.cpu, &mut table);
        }
        table
    }

    /// The reference overlaid with the backend called `name`.
    ///
    /// # Errors
    /// If the name is unknown or the backend refuses: a text that lists every name with its reason.
    pub fn table_of(&self, name: &str) -> Result<KernelTable, Refusal> {
        let Some(found) = self.backends.iter().find(|r| r.backend.name() == name) else {
            return Err(Refusal::new(format!("unknown backend {name:?}; {}", self.describe())));
        };
        if let Some(reason) = &found.refusal {
            return Err(Refusal::new(format!("backend {name} cannot run here: {reason}; {}", self.describe())));
        }
        let mut table = KernelTable::reference();
        found.backend.install(&self.cpu, &mut table);
        Ok(table)
    }

    /// `there are auto, ref, avx2, avx512 (this CPU has no avx512f)`.
    pub fn describe(&self) -> String {
        let names = self.backends.iter().map(|r| match &r.refusal {
            None => r.backend.name().to_owned(),
            Some(reason) => format!("{} ({reason})", r.backend.name()),
        });
        format!("there are {}", std::iter::once("auto".to_owned()).chain(names).collect::<Vec<_>>().join(", "))
    }
}

/// Why no backend can have this name: commas part names, and `auto` is a name that is taken.
pub(crate) fn unfit(name: &str) -> Option<String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    match name {
        "auto" => Some("auto is what the choice among all is called".into()),
        _ if name.is_empty() || !name.chars().all(fits) => Some(format!("a name is of letters, digits, - and _, and {name:?} is not")),
        _ => None,
    }
}
