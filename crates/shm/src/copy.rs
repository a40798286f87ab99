//! Copying what caches do not hold.
//!
//! `memcpy` reads each line of the target before it writes it, until a size at which it writes past the caches. It never does
//! that where the target begins less than 256 bytes further into its page than the source (glibc 2.36). There the
//! processor also takes loads for the stores just before them: 3.1 GB/s where 12 are possible. An array of numpy begins 16
//! bytes into a page, and the data of its object 128. So we write past the caches ourselves, and from 16 MiB on: both sides
//! of such a copy together fill a cache of 32 MiB (10 GB/s where `memcpy` has 7; below that it has more).

use std::ptr::copy_nonoverlapping;

const STREAMED_BYTES_MIN: usize = 16 << 20;

/// What is written before it is released to others is seen by them, as with any copy.
///
/// # Safety
/// As of [`copy_nonoverlapping`].
pub unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    if len < STREAMED_BYTES_MIN {
        // SAFETY: promised by the caller.
        unsafe { copy_nonoverlapping(from, to, len) };
    } else {
        // SAFETY: as above.
        unsafe { stream(from, to, len) };
    }
}

/// # Safety
/// As of [`copy_nonoverlapping`].
#[cfg(target_arch = "x86_64")]
unsafe fn stream(from: *const u8, to: *mut u8, len: usize) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};

    const LINE: usize = 64;
    let head = to.align_offset(LINE).min(len);
    let lines_end = head + (len - head) / LINE * LINE;
    // SAFETY: all of it lies in the `len` bytes of both sides; a line of the target is aligned, and each of its quarters.
    unsafe {
        copy_nonoverlapping(from, to, head);
        for line in (head..lines_end).step_by(LINE) {
            let (from, to) = (from.add(line).cast::<__m128i>(), to.add(line).cast::<__m128i>());
            let quarters = [0, 1, 2, 3].map(|quarter| _mm_loadu_si128(from.add(quarter)));
            for (quarter, bytes) in quarters.into_iter().enumerate() {
                _mm_stream_si128(to.add(quarter), bytes);
            }
        }
        // Such stores are ordered with nothing else: whoever is told of the bytes is told after this.
        _mm_sfence();
        copy_nonoverlapping(from.add(lines_end), to.add(lines_end), len - lines_end);
    }
}

/// # Safety
/// As of [`copy_nonoverlapping`].
#[cfg(not(target_arch = "x86_64"))]
unsafe fn stream(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: promised by the caller.
    unsafe { copy_nonoverlapping(from, to, len) };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Copies between these places of two buffers, and looks at every byte of the target.
    fn check(with: unsafe fn(*const u8, *mut u8, usize), from: usize, to: usize, len: usize) {
        let source: Vec<u8> = (0..from + len).map(|at| (at * 7 + at / 251) as u8).collect();
        let mut target = vec![0xee; to + len + 100];
        // SAFETY: both places have `len` bytes.
        unsafe { with(source[from..].as_ptr(), target[to..].as_mut_ptr(), len) };
        assert!(target[..to].iter().all(|byte| *byte == 0xee));
        assert!(target[to..to + len] == source[from..], "{len} bytes from {from} to {to}");
        assert!(target[to + len..].iter().all(|byte| *byte == 0xee));
    }

    #[test]
    fn every_byte_is_copied_and_no_other_wherever_both_begin() {
        for from in [0, 1, 15, 16, 63, 64] {
            for to in [0, 1, 8, 48, 63, 64, 112] {
                for len in (0..200).chain([4095, 4096, 10_000]) {
                    check(stream, from, to, len);
                }
            }
        }
    }

    #[test]
    fn what_is_large_is_copied_like_what_is_small() {
        for len in [0, 1, 1000, STREAMED_BYTES_MIN - 1, STREAMED_BYTES_MIN, STREAMED_BYTES_MIN + 77]
        {
            check(copy, 3, 5, len);
        }
    }
}
