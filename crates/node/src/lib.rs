//! hoplo-node
