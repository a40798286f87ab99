//! hoplo-py
