//! AVX-VNNI for CPUs without it: a handler of the signal that says "illegal instruction".

use std::arch::asm;
use std::arch::x86_64::{__cpuid_count, __m256i, _mm256_dpbusd_epi32, _mm256_loadu_si256, _mm256_storeu_si256};
use std::ffi::c_int;
use std::sync::Once;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};

use super::instruction::{Address, Base, Instruction, Operand, Operation, execute};

/// The general registers in the order of their numbers, as places in the saved state.
const GENERAL: [c_int; 16] = [
    libc::REG_RAX,
    libc::REG_RCX,
    libc::REG_RDX,
    libc::REG_RBX,
    libc::REG_RSP,
    libc::REG_RBP,
    libc::REG_RSI,
    libc::REG_RDI,
    libc::REG_R8,
    libc::REG_R9,
    libc::REG_R10,
    libc::REG_R11,
    libc::REG_R12,
    libc::REG_R13,
    libc::REG_R14,
    libc::REG_R15,
];
/// Where the lower halves of the vector registers are saved, and which parts of the state are: Intel's Software Developer's
/// Manual, volume 1, 13.4.
const LOWER: usize = 160;
const SAVED: usize = 512;
const N_VECTORS: usize = 16;
const SSE: u64 = 1 << 1;
const AVX: u64 = 1 << 2;
/// Where Linux says that there is more than the oldest part of the state, and how (`struct _fpx_sw_bytes`).
const MAGIC: usize = 464;
const HAS_MORE: u32 = 0x4650_5853;
/// The instruction `int3`.
const BREAKPOINT: u8 = 0xcc;
const PAGE: usize = 4096;

/// Where the upper halves are saved.
static UPPER: AtomicUsize = AtomicUsize::new(0);
static COUNT: AtomicU64 = AtomicU64::new(0);

/// Instructions emulated so far.
pub(crate) fn count() -> u64 {
    COUNT.load(Ordering::Relaxed)
}

/// Emulates the instruction on all threads from now on.
///
/// Where it was met once it becomes a breakpoint: a virtual machine may be left on each illegal instruction, which takes long.
pub(crate) fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // Part 2 of the extended state.
        UPPER.store(__cpuid_count(0xd, 2).ebx as usize, Ordering::Relaxed);
        // SAFETY: all zeros are an action without flags and blocked signals; the handler has the type that the flag asks for.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handle as extern "C" fn(c_int, *mut libc::siginfo_t, *mut libc::c_void) as usize;
            action.sa_flags = libc::SA_SIGINFO;
            for signal in [libc::SIGILL, libc::SIGTRAP] {
                assert_eq!(libc::sigaction(signal, &action, std::ptr::null_mut()), 0, "no handler of signal {signal}");
            }
        }
    });
}

/// Runs the instruction, and those behind it that can be run as well, on the saved state of the thread. Another one is illegal
/// as before.
extern "C" fn handle(signal: c_int, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes the state it saved, and takes it back when this returns; the code at its instruction pointer is
    // readable since it was run.
    unsafe {
        let machine = &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext;
        if signal == libc::SIGTRAP {
            machine.gregs[libc::REG_RIP as usize] -= 1; // back to the breakpoint
        }
        let first = machine.gregs[libc::REG_RIP as usize] as usize;
        let mut dots = 0;
        while let Some(operation) = step(machine) {
            dots += u64::from(operation == Operation::Dot);
        }
        COUNT.fetch_add(dots, Ordering::Relaxed);
        if dots == 0 {
            libc::signal(signal, libc::SIG_DFL);
        } else if signal == libc::SIGILL {
            set_breakpoint(first);
        }
    }
}

/// Makes an instruction a breakpoint, unless the system forbids that.
///
/// # Safety
/// There is an instruction, whose first byte is [`Instruction::FIRST`].
unsafe fn set_breakpoint(at: usize) {
    // SAFETY: the page stays what it is, but for being written; a byte is written at once, and both it and the one before are
    // taken for the instruction.
    unsafe {
        let page = at / PAGE * PAGE;
        if libc::mprotect(page as *mut libc::c_void, PAGE, libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC) == 0 {
            (*(at as *const AtomicU8)).store(BREAKPOINT, Ordering::SeqCst);
        }
    }
}

/// Runs one instruction; none if it is another.
///
/// # Safety
/// `machine` is the saved state of a thread that can go on.
unsafe fn step(machine: &mut libc::mcontext_t) -> Option<Operation> {
    // SAFETY: bytes are read in order, and none behind an instruction that is there; what that reads is there as well.
    unsafe {
        let at = machine.gregs[libc::REG_RIP as usize] as usize;
        let code = |i: usize| match (i, (at as *const u8).add(i).read()) {
            (0, BREAKPOINT) => Instruction::FIRST,
            (_, byte) => byte,
        };
        let Instruction { operation, to, quants, from, len } = Instruction::decode(code)?;
        let vectors = Vectors::new(machine)?;
        let address = |address: Address| {
            let general = |register: usize| machine.gregs[GENERAL[register] as usize] as usize;
            let base = match address.base {
                Base::Nothing => 0,
                Base::Register(register) => general(register),
                Base::NextInstruction => at + len,
            };
            let index = address.index.map_or(0, general) << address.scale;
            base.wrapping_add(index).wrapping_add_signed(address.displacement as isize)
        };
        let result = match (operation, from) {
            (Operation::Broadcast, Operand::Memory(from)) => {
                let number = (address(from) as *const [u8; 4]).read();
                let mut result = [0; 32];
                result.as_chunks_mut::<4>().0.fill(number);
                result
            }
            (_, from) => {
                let activations = match from {
                    Operand::Register(register) => vectors.read(register),
                    Operand::Memory(from) => (address(from) as *const [u8; 32]).read(),
                };
                let mut sum = vectors.read(to);
                execute(&mut sum, &vectors.read(quants), &activations);
                sum
            }
        };
        vectors.write(to, &result);
        machine.gregs[libc::REG_RIP as usize] = (at + len) as i64;
        Some(operation)
    }
}

/// The saved vector registers.
struct Vectors(*mut u8);

impl Vectors {
    /// Those of a thread, all of them saved: a part that was not is zero. None if the system saves no upper halves.
    ///
    /// # Safety
    /// `machine` is the saved state of a thread.
    unsafe fn new(machine: &libc::mcontext_t) -> Option<Self> {
        let state = machine.fpregs.cast::<u8>();
        // SAFETY: the oldest part of the state is always there, and says whether there is more.
        unsafe {
            if state.add(MAGIC).cast::<u32>().read_unaligned() != HAS_MORE {
                return None;
            }
            let saved = state.add(SAVED).cast::<u64>();
            for (part, at) in [(SSE, LOWER), (AVX, UPPER.load(Ordering::Relaxed))] {
                if saved.read_unaligned() & part == 0 {
                    state.add(at).write_bytes(0, N_VECTORS * 16);
                    saved.write_unaligned(saved.read_unaligned() | part);
                }
            }
        }
        Some(Vectors(state))
    }

    /// Both halves of a register.
    fn halves(&self, register: usize) -> [*mut [u8; 16]; 2] {
        [LOWER, UPPER.load(Ordering::Relaxed)].map(|at| self.0.wrapping_add(at + 16 * register).cast())
    }

    fn read(&self, register: usize) -> [u8; 32] {
        let mut bytes = [0; 32];
        for (half, bytes) in self.halves(register).into_iter().zip(bytes.as_chunks_mut::<16>().0) {
            // SAFETY: both halves are saved.
            *bytes = unsafe { half.read() };
        }
        bytes
    }

    fn write(&self, register: usize, bytes: &[u8; 32]) {
        for (half, bytes) in self.halves(register).into_iter().zip(bytes.as_chunks::<16>().0) {
            // SAFETY: both halves are saved.
            unsafe { half.write(*bytes) }
        }
    }
}

/// Operands of the instruction.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(32))]
struct Operands {
    sum: [i32; 8],
    quants: [u8; 32],
    activations: [i8; 32],
}

/// Ordinary numbers, then the largest, with sums about to wrap.
static OPERANDS: [Operands; 3] = [
    Operands {
        sum: [0, 1, -1, 1000, -1000, 7, 8, 9],
        quants: [
            1, 2, 3, 4, 5, 6, 7, 8, 250, 251, 252, 253, 0, 128, 127, 255, 16, 32, 64, 128, 3, 5, 7, 11, 13, 17, 19, 23, 200, 100, 50, 25,
        ],
        activations: [
            1, -1, 2, -2, 100, 101, -102, 103, -128, 127, -1, 0, 99, -99, 55, -44, 1, 2, 3, 4, -5, 6, -7, 8, 9, -10, 11, -12, 13, 14, 15,
            16,
        ],
    },
    Operands { sum: [i32::MIN, i32::MIN + 1, 0, 1, 2, 3, 4, i32::MIN + 130_560], quants: [255; 32], activations: [-128; 32] },
    Operands { sum: [i32::MAX, i32::MAX - 129_540, 0, 1, 2, 3, 4, 5], quants: [255; 32], activations: [127; 32] },
];

/// What the CPU makes of the same instruction in the encoding of AVX-512.
#[target_feature(enable = "avx512vnni,avx512vl,avx2")]
fn by_avx512(x: &Operands) -> [i32; 8] {
    let load = |at: *const __m256i| {
        // SAFETY: each of the operands is 32 bytes.
        unsafe { _mm256_loadu_si256(at) }
    };
    let sum = _mm256_dpbusd_epi32(load(x.sum.as_ptr().cast()), load(x.quants.as_ptr().cast()), load(x.activations.as_ptr().cast()));
    let mut sums = [0; 8];
    // SAFETY: 8 numbers.
    unsafe { _mm256_storeu_si256(sums.as_mut_ptr().cast(), sum) };
    sums
}

/// The sums after `vpdpbusd $sum, $quants, $activations`. `rcx`, `r12` and `r13` are the address of the activations less `$before`,
/// `r10` is an eighth of that, and `r9` is 5.
macro_rules! run {
    ($x:expr, $sum:literal, $quants:literal, $activations:literal, $before:literal) => {{
        let mut x: Operands = $x;
        let at = (&raw const x.activations).wrapping_byte_offset(-$before);
        // SAFETY: the instruction is emulated or there, and reads what the operands are.
        unsafe {
            asm!(
                concat!("vmovdqu ", $sum, ", [rax]"),
                concat!("vmovdqu ", $quants, ", [rdx]"),
                "vmovdqu ymm9, [rsi] /* {x} */",
                concat!("{{vex}} vpdpbusd ", $sum, ", ", $quants, ", ", $activations),
                concat!("vmovdqu [rax], ", $sum),
                in("rax") &raw mut x.sum, in("rdx") &raw const x.quants, in("rsi") &raw const x.activations,
                in("rcx") at, in("r12") at, in("r13") at, in("r10") at.addr() / 8, in("r9") 5_usize, x = sym OPERANDS,
                out("ymm1") _, out("ymm3") _, out("ymm9") _, out("ymm11") _, out("ymm15") _,
            );
        }
        x.sum
    }};
}

#[test]
fn the_instruction_does_what_it_does_on_another_cpu() {
    if super::with_vnni().is_none() {
        return super::skipped("this CPU has no AVX2");
    }
    let [ordinary, lowest, highest] = OPERANDS;
    // By hand: four products of the largest bytes are -130560 and 129540.
    let wanted = [i32::MAX - 130_559, i32::MAX - 130_558, -130_560, -130_559, -130_558, -130_557, -130_556, i32::MIN];
    assert_eq!(run!(lowest, "ymm1", "ymm3", "ymm9", 0), wanted);
    assert_eq!(run!(highest, "ymm1", "ymm3", "ymm9", 0)[..3], [i32::MIN + 129_539, i32::MAX, 129_540]);
    assert_eq!(run!(ordinary, "ymm1", "ymm3", "ymm9", 0)[0], 1 - 2 + 6 - 8);
    for x in OPERANDS {
        let wanted = run!(x, "ymm1", "ymm3", "ymm9", 0);
        if is_x86_feature_detected!("avx512vnni") && is_x86_feature_detected!("avx512vl") {
            // SAFETY: the features are there.
            assert_eq!(unsafe { by_avx512(&x) }, wanted);
        }
        // Other registers, and each form of an address.
        let got = [
            run!(x, "ymm15", "ymm11", "ymm9", 0),
            run!(x, "ymm1", "ymm11", "[rcx]", 0),
            run!(x, "ymm11", "ymm3", "[r12]", 0),
            run!(x, "ymm3", "ymm15", "[r13]", 0),
            run!(x, "ymm1", "ymm3", "[rcx + 64]", 64),
            run!(x, "ymm1", "ymm3", "[r13 - 128]", -128),
            run!(x, "ymm1", "ymm3", "[r12 + 4096]", 4096),
            run!(x, "ymm15", "ymm3", "[rcx + 8*r9 + 24]", 64),
            run!(x, "ymm1", "ymm3", "[r13 + 4*r9 - 4096]", -4076),
            run!(x, "ymm1", "ymm15", "[8*r10]", 0),
        ];
        for (i, got) in got.into_iter().enumerate() {
            assert_eq!(got, wanted, "form {i}");
        }
    }
    assert_eq!(run!(ordinary, "ymm1", "ymm3", "[rip + {x} + 64]", 0), run!(ordinary, "ymm1", "ymm3", "ymm9", 0));
}
