//! The backend `avx2`.

mod matmul;

use crate::matmul::MatmulKernel;
#[doc(hidden)]
pub fn kernels() -> &'static [&'static dyn MatmulKernel] { matmul::KERNELS }
