//! `vpdpbusd` in VEX encoding: how it is read, and what it does.
//!
//! That is `VEX.256.66.0F38.W0 50 /r` in Intel's Software Developer's Manual, volume 2. Beside it stand those that repeat a number
//! in all lanes, since kernels alternate between the two.

/// What an instruction does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// `vpdpbusd`
    Dot,
    /// `vpbroadcastd` and `vbroadcastss`, from memory
    Broadcast,
}

/// An instruction, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Instruction {
    /// What it does.
    pub(crate) operation: Operation,
    /// Register that is written, of sums in a dot product: the first operand.
    pub(crate) to: usize,
    /// Register of unsigned bytes in a dot product: the second.
    pub(crate) quants: usize,
    /// Signed bytes in a dot product: the last.
    pub(crate) from: Operand,
    /// Bytes of the instruction.
    pub(crate) len: usize,
}

/// A register or a place in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operand {
    Register(usize),
    Memory(Address),
}

/// `base + (index << scale) + displacement`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) base: Base,
    pub(crate) index: Option<usize>,
    pub(crate) scale: u8,
    pub(crate) displacement: i32,
}

/// What an address starts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Base {
    Nothing,
    Register(usize),
    NextInstruction,
}

impl Instruction {
    /// The first byte.
    pub(crate) const FIRST: u8 = 0xc4;

    /// The instruction whose byte `i` is `code(i)`, if it is one of these. Bytes are asked for in order, none behind it.
    pub(crate) fn decode(code: impl Fn(usize) -> u8) -> Option<Self> {
        if code(0) != Self::FIRST {
            return None;
        }
        // Bits R, X and B are stored inverted, as is the register `vvvv`.
        let first = code(1);
        let bit = |i: usize| usize::from(!first >> i & 1) << 3;
        let (r, x, b) = (bit(7), bit(6), bit(5));
        if first & 0b1_1111 != 0b0_0010 {
            return None;
        }
        let second = code(2);
        if second & 0b1000_0111 != 0b101 {
            return None;
        }
        let operation = match code(3) {
            0x50 => Operation::Dot,
            0x18 | 0x58 => Operation::Broadcast,
            _ => return None,
        };
        let quants = usize::from(!second >> 3 & 15);
        let modrm = code(4);
        let (mode, to, rm) = (modrm >> 6, usize::from(modrm >> 3 & 7) | r, usize::from(modrm & 7));
        let mut len = 5;
        if mode == 3 {
            let from = Operand::Register(rm | b);
            return (operation == Operation::Dot).then_some(Instruction { operation, to, quants, from, len });
        }
        let mut address = Address { base: Base::Register(rm | b), index: None, scale: 0, displacement: 0 };
        let mut wide = mode == 2;
        if rm == 4 {
            let sib = code(len);
            len += 1;
            let (index, base) = (usize::from(sib >> 3 & 7) | x, usize::from(sib & 7));
            address.base = Base::Register(base | b);
            address.index = (index != 4).then_some(index);
            address.scale = sib >> 6;
            if base == 5 && mode == 0 {
                (address.base, wide) = (Base::Nothing, true);
            }
        } else if rm == 5 && mode == 0 {
            (address.base, wide) = (Base::NextInstruction, true);
        }
        if wide {
            address.displacement = i32::from_le_bytes([code(len), code(len + 1), code(len + 2), code(len + 3)]);
            len += 4;
        } else if mode == 1 {
            address.displacement = i32::from(code(len) as i8);
            len += 1;
        }
        Some(Instruction { operation, to, quants, from: Operand::Memory(address), len })
    }
}

/// What `vpdpbusd` does to its first operand: to each lane of 32 bits it adds the products of four bytes, and wraps.
pub(crate) fn execute(sum: &mut [u8; 32], quants: &[u8; 32], activations: &[u8; 32]) {
    let lanes = sum.as_chunks_mut::<4>().0.iter_mut().zip(quants.as_chunks::<4>().0).zip(activations.as_chunks::<4>().0);
    for ((sum, quants), activations) in lanes {
        let mut lane = i32::from_le_bytes(*sum);
        for (&q, &a) in quants.iter().zip(activations) {
            lane = lane.wrapping_add(i32::from(q) * i32::from(a as i8));
        }
        *sum = lane.to_le_bytes();
    }
}
