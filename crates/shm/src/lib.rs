//! hoplo-shm
