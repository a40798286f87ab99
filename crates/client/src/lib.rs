//! hoplo-client
