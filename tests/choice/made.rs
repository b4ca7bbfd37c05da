//! Backends that are slow, quick, wrong or unwilling on purpose. All multiply Q4_1 and Q8_0.

use std::sync::LazyLock;

use rml_backends::matmul::{MatmulKernel, PackedLayout, Weights};
use rml_backends::{Backend, CpuFeatures, KernelTable, Refusal, TileMut};
use rml_kernels_ref::activation::{ActivationKind, Activations};
use rml_kernels_ref::format::Format;

/// What [`REFUSING`] says.
pub(crate) const REFUSES: &str = "this CPU has no luck";
/// What [`SHY`] says of any matrix.
pub(crate) const SHY_OF: &str = "not while anyone looks";

/// What a made kernel does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    /// The reference's product, eight times over.
    Slow,
    /// The product of a backend that is fast indeed.
    Quick,
    /// As quick, but it does not promise the reference's bits.
    Loose,
    /// Zeros, and it promises the reference's bits.
    Wrong,
    /// Zeros, and it promises to be near.
    Sloppy,
    /// It takes no shape.
    Shy,
    /// It cannot run here.
    Refusing,
}

/// A backend.
#[derive(Debug)]
pub(crate) struct Made {
    pub(crate) name: &'static str,
    rank: u32,
    manner: Manner,
    ids: [&'static str; 2], // of its kernels for Q4_1 and Q8_0
}

macro_rules! made {
    ($constant:ident, $name:literal, $rank:literal, $manner:ident) => {
        pub(crate) static $constant: Made = Made {
            name: $name,
            rank: $rank,
            manner: Manner::$manner,
            ids: [concat!($name, ":q4_1·q8:1x1"), concat!($name, ":q8_0·q8:1x1")],
        };
        rml_backends::register!($constant);
    };
}
made!(QUICK, "quick", 1, Quick);
made!(LOOSE, "loose", 90, Loose);
made!(SLOW, "slow", 91, Slow);
made!(SHY, "shy", 92, Shy);
made!(SLOPPY, "sloppy", 93, Sloppy);
made!(WRONG, "wrong", 94, Wrong);
made!(REFUSING, "refusing", 95, Refusing);

impl Backend for Made {
    fn name(&self) -> &'static str {
        self.name
    }

    fn rank(&self) -> u32 {
        self.rank
    }

    fn probe(&self, _: &CpuFeatures) -> Result<(), Refusal> {
        match self.manner {
            Manner::Refusing => Err(Refusal::new(REFUSES)),
            Manner::Quick | Manner::Loose if fast().is_none() => Err(Refusal::new("nothing here is faster than ref")),
            _ => Ok(()),
        }
    }

    fn install(&self, _: &CpuFeatures, table: &mut KernelTable) {
        for (id, format) in self.ids.into_iter().zip([Format::Q4_1, Format::Q8_0]) {
            let inner = match self.manner {
                Manner::Quick | Manner::Loose => fast().expect("probed").matmul(format).last().expect("one at least").1,
                _ => REFERENCE.matmul(format)[0].1,
            };
            // A kernel lives as long as the program.
            table.put_matmul(self.name, Box::leak(Box::new(Around { id, manner: self.manner, inner })));
        }
    }
}

static REFERENCE: LazyLock<KernelTable> = LazyLock::new(KernelTable::reference);

#[cfg(target_arch = "x86_64")]
const REAL: Option<&dyn Backend> = Some(&rml_backends::avx2::Avx2);
#[cfg(not(target_arch = "x86_64"))]
const REAL: Option<&dyn Backend> = None;

/// The kernels of a backend that is many times faster than the reference, if one runs here.
pub(crate) fn fast() -> Option<&'static KernelTable> {
    static TABLE: LazyLock<Option<KernelTable>> = LazyLock::new(|| {
        let cpu = CpuFeatures::detect(&std::env::var("RML_DISABLE").unwrap_or_default()).ok()?;
        let real = REAL.filter(|real| real.probe(&cpu).is_ok())?;
        let mut table = KernelTable::reference();
        real.install(&cpu, &mut table);
        Some(table)
    });
    TABLE.as_ref()
}

/// A kernel around another.
#[derive(Debug)]
struct Around {
    id: &'static str,
    manner: Manner,
    inner: &'static dyn MatmulKernel,
}

impl MatmulKernel for Around {
    fn id(&self) -> &'static str {
        self.id
    }

    fn format(&self) -> Format {
        self.inner.format()
    }

    fn activation(&self) -> ActivationKind {
        self.inner.activation()
    }

    fn exact(&self) -> bool {
        !matches!(self.manner, Manner::Sloppy | Manner::Loose)
    }

    fn layout(&self, n: usize, k: usize) -> Result<PackedLayout, Refusal> {
        if self.manner == Manner::Shy { Err(Refusal::new(SHY_OF)) } else { self.inner.layout(n, k) }
    }

    fn pack_panel(&self, src: &[u8], n_rows: usize, k: usize, dst: &mut [u8]) {
        self.inner.pack_panel(src, n_rows, k, dst);
    }

    fn multiply(&self, w: &Weights<'_>, x: &Activations<'_>, out: &mut TileMut<'_>) {
        match self.manner {
            Manner::Slow => (0..8).for_each(|_| self.inner.multiply(w, x, out)),
            Manner::Wrong | Manner::Sloppy => (0..out.m()).for_each(|i| out.row(i).fill(0.0)),
            Manner::Quick | Manner::Loose | Manner::Shy | Manner::Refusing => self.inner.multiply(w, x, out),
        }
    }
}
