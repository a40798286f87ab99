//! hoplo-base
