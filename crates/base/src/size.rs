//! Bytes as people read them.

use std::fmt;

/// `1.5 GiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
        if self.0 < 1024 {
            return write!(f, "{} B", self.0);
        }
        let unit = (self.0.ilog2() / 10).min(UNITS.len() as u32);
        let amount = self.0 as f64 / (1_u64 << (10 * unit)) as f64;
        write!(f, "{amount:.1} {}", UNITS[unit as usize - 1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_well() {
        let sizes = [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1536, "1.5 KiB"),
            (5 << 30, "5.0 GiB"),
            (5_000_000_000_000, "4.5 TiB"),
            (u64::MAX, "16777216.0 TiB"),
        ];
        for (bytes, text) in sizes {
            assert_eq!(Size(bytes).to_string(), text);
        }
    }
}
