//! skeleton

mod call;
pub use call::{Call, CallOptions, SubmitError};
