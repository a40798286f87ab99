//! hoplo-sim
