//! What a replica keeps on its disk: the log of its history, and rows that left memory.

pub mod cold;
pub mod log;

/// So many cases of a random test, or as many as PROPTEST_CASES says.
#[cfg(test)]
pub(crate) fn cases(count: u32) -> proptest::test_runner::Config {
    let told = proptest::test_runner::Config::default();
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() { told.cases } else { count };
    proptest::test_runner::Config { cases, ..told }
}
