//! What things are called in a base and in a session's folder: see the crate's picture.

/// Where the head of its cluster listens.
pub(crate) const CLUSTER: &str = "cluster";
pub(crate) const CURRENT: &str = "current";
/// Pythons that were built for runtime environments.
pub(crate) const ENVIRONMENTS: &str = "environments";
pub(crate) const HEAD: &str = "head";
pub(crate) const CONTROL: &str = "control";
pub(crate) const LOCK: &str = "lock";
pub(crate) const LOGS: &str = "logs";
/// Of a folder that a user named for a session.
pub(crate) const MARK: &str = "hoplo-session";
/// What workers unpacked of runtime environments.
pub(crate) const PACKAGES: &str = "packages";
pub(crate) const SOCKET: &str = "sock";
/// A control store that is being made of a backup.
pub(crate) const RESTORED: &str = "control.new";
pub(crate) const SPILL: &str = "spill";
pub(crate) const TLS: &str = "tls";
