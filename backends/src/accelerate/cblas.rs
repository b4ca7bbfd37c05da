//! The one call of CBLAS. Source: `cblas.h` of the reference BLAS, which Accelerate and OpenBLAS follow.

use std::ffi::c_int;

#[cfg(target_os = "macos")]
use accelerate_src as _;

const ROW_MAJOR: c_int = 101;
const NO_TRANSPOSE: c_int = 111;

#[cfg_attr(not(target_os = "macos"), link(name = "openblas"))]
unsafe extern "C" {
    fn cblas_sgemm(
        order: c_int,
        transpose_a: c_int,
        transpose_b: c_int,
        m: c_int,
        n: c_int,
        k: c_int,
        alpha: f32,
        a: *const f32,
        a_stride: c_int,
        b: *const f32,
        b_stride: c_int,
        beta: f32,
        c: *mut f32,
        c_stride: c_int,
    );
}

/// Rows that stand `stride` numbers apart.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a> {
    pub(super) numbers: &'a [f32],
    pub(super) stride: usize,
}

/// `c = a b`, or `c += a b` where `add`: `a` is (m, k), `b` (k, n) and `c` (m, n), rows `c_stride` apart.
///
/// # Panics
/// If `a` or `b` hold less than that, or a size does not fit a C `int`.
///
/// # Safety
/// The `m` rows of `n` numbers at `c` must be valid, initialized where `add`, and nobody else's.
pub(super) unsafe fn multiply((m, n, k): (usize, usize, usize), a: Rows<'_>, b: Rows<'_>, c: *mut f32, c_stride: usize, add: bool) {
    if m == 0 || n == 0 {
        return;
    }
    let holds = |x: Rows<'_>, rows: usize, width: usize| x.stride >= width && x.numbers.len() >= (rows.max(1) - 1) * x.stride + width;
    assert!(holds(a, m, k) && holds(b, k, n) && (c_stride >= n || m == 1), "a product of {m} x {k} and {k} x {n}");
    let int = |n: usize| c_int::try_from(n).expect("sizes fit an int");
    let (order, plain) = (ROW_MAJOR, NO_TRANSPOSE);
    let beta = if add { 1.0 } else { 0.0 };
    let (a_stride, b_stride, c_stride) = (int(a.stride), int(b.stride), int(c_stride.max(n)));
    let (a, b) = (a.numbers.as_ptr(), b.numbers.as_ptr());
    // SAFETY: `a` and `b` are asserted to hold what the call reads, `c` is the caller's; with beta 0 it is written only.
    unsafe { cblas_sgemm(order, plain, plain, int(m), int(n), int(k), 1.0, a, a_stride, b, b_stride, beta, c, c_stride) }
}
