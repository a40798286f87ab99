//! hoplo-wire
