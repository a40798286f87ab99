//! The tags of plain values (`crates/py/src/values`), for those who look into one without Python.

pub const NONE: u8 = 1;
pub const FALSE: u8 = 2;
pub const TRUE: u8 = 3;
pub const INT: u8 = 4;
pub const FLOAT: u8 = 5;
pub const STR: u8 = 6;
pub const BYTES: u8 = 7;
pub const REF: u8 = 8;
pub const TUPLE: u8 = 9;
pub const LIST: u8 = 10;
pub const DICT: u8 = 11;
pub const ARRAY: u8 = 12;
pub const PACKED: u8 = 13;

/// Containers are no deeper.
pub const DEPTH_MAX: u32 = 8;

/// The flag of an array that could be written when it was encoded.
pub const WRITABLE: u8 = 2;
