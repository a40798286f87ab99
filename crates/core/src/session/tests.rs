//! Conversations with the session machine.
