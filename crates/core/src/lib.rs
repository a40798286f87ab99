//! hoplo-core
