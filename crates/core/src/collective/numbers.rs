//! Numbers folded into numbers, as numpy does it: whole ones wrap around, and what is no number stays none.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use hoplo_wire::FoldOp;
use hoplo_wire::layout::Numbers;

/// Whether `fold` can do it. Complex numbers are only added.
pub fn folds(op: FoldOp, numbers: Numbers) -> bool {
    !matches!(numbers, Numbers::C64 | Numbers::C128) || op == FoldOp::Sum
}

/// Folds `more` into `total`: so many whole numbers of that kind each, in native byte order.
pub fn fold(op: FoldOp, numbers: Numbers, total: &mut [u8], more: &[u8]) {
    assert_eq!(total.len(), more.len(), "as many numbers each");
    assert!(total.len().is_multiple_of(numbers.bytes()), "no number is cut");
    assert!(folds(op, numbers), "the caller has looked");
    match numbers {
        Numbers::Bool => truths(op, total, more),
        Numbers::F16 => halves::<f16>(op, total, more),
        Numbers::Bf16 => halves::<bf16>(op, total, more),
        Numbers::I8 => whole::<i8, 1>(op, total, more),
        Numbers::U8 => whole::<u8, 1>(op, total, more),
        Numbers::I16 => whole::<i16, 2>(op, total, more),
        Numbers::U16 => whole::<u16, 2>(op, total, more),
        Numbers::I32 => whole::<i32, 4>(op, total, more),
        Numbers::U32 => whole::<u32, 4>(op, total, more),
        Numbers::I64 => whole::<i64, 8>(op, total, more),
        Numbers::U64 => whole::<u64, 8>(op, total, more),
        // The parts of complex numbers are added by themselves.
        Numbers::F32 | Numbers::C64 => whole::<f32, 4>(op, total, more),
        Numbers::F64 | Numbers::C128 => whole::<f64, 8>(op, total, more),
    }
}

/// Whether `divide` can do it: a whole number would be none any more, and a sum of small ones may be too large for their kind.
pub fn divides(numbers: Numbers) -> bool {
    matches!(numbers, Numbers::F32 | Numbers::F64 | Numbers::C64 | Numbers::C128)
}

/// Divides so many whole numbers of that kind, in native byte order, by `count`: as numpy does it, to the last bit.
pub fn divide(numbers: Numbers, total: &mut [u8], count: u32) {
    assert!(total.len().is_multiple_of(numbers.bytes()), "no number is cut");
    let (short, long) = (count as f32, f64::from(count));
    match numbers {
        Numbers::F32 => each_alone(total, |it| (f32::from_ne_bytes(it) / short).to_ne_bytes()),
        Numbers::F64 => each_alone(total, |it| (f64::from_ne_bytes(it) / long).to_ne_bytes()),
        // Of complex ones both parts are multiplied.
        Numbers::C64 => {
            each_alone(total, |it| (f32::from_ne_bytes(it) * short.recip()).to_ne_bytes())
        }
        Numbers::C128 => {
            each_alone(total, |it| (f64::from_ne_bytes(it) * long.recip()).to_ne_bytes())
        }
        whole => panic!("the caller has looked: {whole:?}"),
    }
}

fn each_alone<const BYTES: usize>(total: &mut [u8], op: impl Fn([u8; BYTES]) -> [u8; BYTES]) {
    for one in total.as_chunks_mut::<BYTES>().0 {
        *one = op(*one);
    }
}

/// One loop for each operation, so that the compiler makes vectors of it.
fn whole<N: Number<BYTES>, const BYTES: usize>(op: FoldOp, total: &mut [u8], more: &[u8]) {
    match op {
        FoldOp::Sum => each(total, more, N::sum),
        FoldOp::Prod => each(total, more, N::prod),
        FoldOp::Min => each(total, more, N::least),
        FoldOp::Max => each(total, more, N::most),
    }
}

/// To add truth values is to say whether one of them is true.
fn truths(op: FoldOp, total: &mut [u8], more: &[u8]) {
    for (one, other) in total.iter_mut().zip(more) {
        let (is_one, is_other) = (*one != 0, *other != 0);
        *one = u8::from(match op {
            FoldOp::Sum | FoldOp::Max => is_one || is_other,
            FoldOp::Prod | FoldOp::Min => is_one && is_other,
        });
    }
}

/// As numpy and ml_dtypes do it: in f32, and rounded.
fn halves<H: Half>(op: FoldOp, total: &mut [u8], more: &[u8])
where
    [H]: HalfFloatSliceExt,
{
    /// Numbers at a time: conversions of many take few instructions for each.
    const BLOCK: usize = 512;
    let wide = |bytes: &[u8], into: &mut [f32; BLOCK]| {
        let mut halves = [H::default(); BLOCK];
        let numbers = bytes.as_chunks::<2>().0;
        for (half, number) in halves.iter_mut().zip(numbers) {
            *half = H::of(*number);
        }
        halves[..numbers.len()].convert_to_f32_slice(&mut into[..numbers.len()]);
    };
    let (mut ones, mut others) = ([0.0; BLOCK], [0.0; BLOCK]);
    for (total, more) in total.chunks_mut(2 * BLOCK).zip(more.chunks(2 * BLOCK)) {
        wide(total, &mut ones);
        wide(more, &mut others);
        let numbers = total.as_chunks_mut::<2>().0;
        let made = ones.iter().zip(&others).map(|(one, other)| match op {
            FoldOp::Sum => one.sum(*other),
            FoldOp::Prod => one.prod(*other),
            FoldOp::Min => one.least(*other),
            FoldOp::Max => one.most(*other),
        });
        let mut wides = [0.0; BLOCK];
        wides.iter_mut().zip(made).for_each(|(wide, made)| *wide = made);
        let mut halves = [H::default(); BLOCK];
        halves.convert_from_f32_slice(&wides);
        for (number, half) in numbers.iter_mut().zip(halves) {
            *number = half.bytes();
        }
    }
}

/// A floating number of two bytes.
trait Half: Copy + Default {
    fn of(bytes: [u8; 2]) -> Self;
    fn bytes(self) -> [u8; 2];
}

macro_rules! half {
    ($($number:ident)*) => {
        $(impl Half for $number {
            #[inline]
            fn of(bytes: [u8; 2]) -> Self {
                Self::from_ne_bytes(bytes)
            }

            #[inline]
            fn bytes(self) -> [u8; 2] {
                self.to_ne_bytes()
            }
        })*
    };
}

half! { f16 bf16 }

#[inline]
fn each<N: Number<BYTES>, const BYTES: usize>(
    total: &mut [u8],
    more: &[u8],
    op: impl Fn(N, N) -> N,
) {
    let (total, more) = (total.as_chunks_mut::<BYTES>().0, more.as_chunks::<BYTES>().0);
    for (one, other) in total.iter_mut().zip(more) {
        *one = op(N::of(*one), N::of(*other)).bytes();
    }
}

trait Number<const BYTES: usize>: Copy {
    fn of(bytes: [u8; BYTES]) -> Self;
    fn bytes(self) -> [u8; BYTES];
    fn sum(self, other: Self) -> Self;
    fn prod(self, other: Self) -> Self;
    fn least(self, other: Self) -> Self;
    fn most(self, other: Self) -> Self;
}

macro_rules! number {
    ($number:ty, $bytes:literal, $sum:expr, $prod:expr, $is_none:expr) => {
        impl Number<$bytes> for $number {
            #[inline]
            fn of(bytes: [u8; $bytes]) -> Self {
                Self::from_ne_bytes(bytes)
            }

            #[inline]
            fn bytes(self) -> [u8; $bytes] {
                self.to_ne_bytes()
            }

            #[inline]
            fn sum(self, other: Self) -> Self {
                $sum(self, other)
            }

            #[inline]
            fn prod(self, other: Self) -> Self {
                $prod(self, other)
            }

            #[inline]
            fn least(self, other: Self) -> Self {
                if self < other || $is_none(self) { self } else { other }
            }

            #[inline]
            fn most(self, other: Self) -> Self {
                if self > other || $is_none(self) { self } else { other }
            }
        }
    };
}

macro_rules! whole_number {
    ($($number:ident, $bytes:literal;)*) => {
        $(number!($number, $bytes, $number::wrapping_add, $number::wrapping_mul, |_| false);)*
    };
}

macro_rules! float {
    ($($number:ident, $bytes:literal;)*) => {
        $(number!($number, $bytes, |a, b| a + b, |a, b| a * b, $number::is_nan);)*
    };
}

whole_number! { i8, 1; u8, 1; i16, 2; u16, 2; i32, 4; u32, 4; i64, 8; u64, 8; }
float! { f32, 4; f64, 8; }

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_wrap_around() {
        let mut total = [200, 3];
        fold(FoldOp::Sum, Numbers::U8, &mut total, &[100, 4]);
        assert_eq!(total, [44, 7]);
        let mut total = (-2i16).to_ne_bytes();
        fold(FoldOp::Min, Numbers::I16, &mut total, &1i16.to_ne_bytes());
        assert_eq!(i16::from_ne_bytes(total), -2);
        let mut total = i32::MAX.to_ne_bytes();
        fold(FoldOp::Prod, Numbers::I32, &mut total, &2i32.to_ne_bytes());
        assert_eq!(i32::from_ne_bytes(total), -2);
    }

    #[test]
    fn what_is_no_number_stays_none_on_either_side() {
        for op in [FoldOp::Min, FoldOp::Max, FoldOp::Sum, FoldOp::Prod] {
            for (one, other) in [(f32::NAN, 1.0), (1.0, f32::NAN)] {
                let mut total = one.to_ne_bytes();
                fold(op, Numbers::F32, &mut total, &other.to_ne_bytes());
                assert!(f32::from_ne_bytes(total).is_nan(), "{op:?} of {one} and {other}");
            }
        }
        let mut total = 2f64.to_ne_bytes();
        fold(FoldOp::Max, Numbers::F64, &mut total, &5f64.to_ne_bytes());
        assert_eq!(f64::from_ne_bytes(total), 5.0);
    }

    #[test]
    fn the_upper_halves_of_f32_are_rounded_to_the_nearest_one_and_in_the_middle_to_an_even_one() {
        let of = |numbers: &[f32]| -> Vec<u8> {
            numbers.iter().flat_map(|it| bf16::from_f32(*it).to_ne_bytes()).collect()
        };
        // Between 256 and 512 each second whole number is one.
        let mut total = of(&[256.0, 258.0, 256.0, 3e38]);
        fold(FoldOp::Sum, Numbers::Bf16, &mut total, &of(&[1.0, 1.0, 1.5, 3e38]));
        assert_eq!(total, of(&[256.0, 260.0, 258.0, f32::INFINITY]));
        fold(FoldOp::Min, Numbers::Bf16, &mut total, &of(&[1.0, f32::NAN, 300.0, 2.0]));
        assert_eq!(total[..2], of(&[1.0]));
        assert!(bf16::from_ne_bytes([total[2], total[3]]).is_nan());
        assert_eq!(total[4..], of(&[258.0, 2.0]));
        assert!(!divides(Numbers::Bf16));
    }

    #[test]
    fn complex_numbers_are_added_and_nothing_else() {
        let bytes = |parts: [f32; 2]| parts.map(f32::to_ne_bytes).concat();
        let mut total = bytes([1.0, 2.0]);
        fold(FoldOp::Sum, Numbers::C64, &mut total, &bytes([10.0, 20.0]));
        assert_eq!(total, bytes([11.0, 22.0]));
        assert!(!folds(FoldOp::Prod, Numbers::C64) && !folds(FoldOp::Min, Numbers::C128));
    }

    #[test]
    fn halves_are_rounded_after_each_step_and_truth_values_stay_some() {
        let of = |numbers: &[f32]| -> Vec<u8> {
            numbers.iter().flat_map(|it| f16::from_f32(*it).to_ne_bytes()).collect()
        };
        // More than one block, and a part of one.
        let many = |number| of(&[number; 1300]);
        let mut total = many(2048.0);
        fold(FoldOp::Sum, Numbers::F16, &mut total, &many(1.0));
        assert_eq!(total, many(2048.0), "the next number is 2050");
        fold(FoldOp::Max, Numbers::F16, &mut total, &many(f32::NAN));
        assert!(total.as_chunks().0.iter().all(|it| f16::from_ne_bytes(*it).is_nan()));
        let mut total = of(&[-0.5, 3.0]);
        fold(FoldOp::Prod, Numbers::F16, &mut total, &of(&[4.0, 1e5]));
        assert_eq!(total, of(&[-2.0, f32::INFINITY]));
        let mut total = [0, 0, 1, 1];
        fold(FoldOp::Sum, Numbers::Bool, &mut total, &[0, 1, 0, 1]);
        assert_eq!(total, [0, 1, 1, 1]);
        fold(FoldOp::Min, Numbers::Bool, &mut total, &[1, 1, 0, 1]);
        assert_eq!(total, [0, 1, 0, 1]);
    }

    #[test]
    fn floating_and_complex_numbers_are_divided_and_no_whole_ones() {
        let mut total = [7f32, -1.0].map(f32::to_ne_bytes).concat();
        divide(Numbers::F32, &mut total, 3);
        assert_eq!(total, [7f32 / 3.0, -1.0 / 3.0].map(f32::to_ne_bytes).concat());
        let mut total = [7f64, 2.0].map(f64::to_ne_bytes).concat();
        divide(Numbers::C128, &mut total, 3);
        assert_eq!(total, [7f64 * (1.0 / 3.0), 2.0 * (1.0 / 3.0)].map(f64::to_ne_bytes).concat());
        assert!(divides(Numbers::C64) && !divides(Numbers::I64));
    }
}
