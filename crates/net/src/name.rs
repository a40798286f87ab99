//! What a certificate says of its holder: `hoplo://CLUSTER/ROLE/NAME`, a URI among its alternative names.

use std::fmt;
use std::str::FromStr;

/// The holder of a certificate, in one cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name {
    pub cluster: u128,
    pub role: Role,
    /// Letters, digits and `.:-_[]`, such as an address is made of.
    name: String,
}

/// What a certificate is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// It keeps what the cluster knows about itself, and makes certificates.
    Control,
    /// It runs tasks, and serves those who are of the cluster.
    Node,
    /// It may ask.
    Client,
    /// It may ask, and say how the cluster shall be.
    Operator,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    #[error(
        "{0:?} is no name for a certificate: use 1 to {NAME_BYTES_MAX} letters, digits and .:-_[]"
    )]
    Name(String),
    #[error("{0:?} is no role: use control, node, client or operator")]
    Role(String),
    #[error("{0:?} does not say whose certificate it is")]
    Uri(String),
}

const NAME_BYTES_MAX: usize = 64;
const SCHEME: &str = "hoplo://";

impl Name {
    pub fn new(cluster: u128, role: Role, name: &str) -> Result<Self, NameError> {
        let plain = |it: u8| it.is_ascii_alphanumeric() || b".:-_[]".contains(&it);
        // It names a folder, too.
        let dots = name.bytes().all(|it| it == b'.');
        if dots || name.len() > NAME_BYTES_MAX || !name.bytes().all(plain) {
            return Err(NameError::Name(name.to_string()));
        }
        Ok(Self { cluster, role, name: name.to_string() })
    }

    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{:032x}/{}/{}", self.cluster, self.role, self.name)
    }
}

impl FromStr for Name {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let wrong = || NameError::Uri(text.to_string());
        let mut parts = text.strip_prefix(SCHEME).ok_or_else(wrong)?.splitn(3, '/');
        let (Some(cluster), Some(role), Some(name)) = (parts.next(), parts.next(), parts.next())
        else {
            return Err(wrong());
        };
        let cluster = u128::from_str_radix(cluster, 16).map_err(|_| wrong())?;
        Self::new(cluster, role.parse()?, name)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Role::Control => "control",
            Role::Node => "node",
            Role::Client => "client",
            Role::Operator => "operator",
        })
    }
}

impl FromStr for Role {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        match text {
            "control" => Ok(Self::Control),
            "node" => Ok(Self::Node),
            "client" => Ok(Self::Client),
            "operator" => Ok(Self::Operator),
            other => Err(NameError::Role(other.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_cluster_role_and_who() {
        let name = Name::new(0xab, Role::Node, "10.0.0.1:7100").unwrap();
        let text = "hoplo://000000000000000000000000000000ab/node/10.0.0.1:7100";
        assert_eq!(name.to_string(), text);
        assert_eq!(text.parse(), Ok(name));
    }

    #[test]
    fn what_is_no_name_is_refused() {
        for name in ["", ".", "..", "a/b", "a b", "ä", &"x".repeat(65)] {
            assert!(Name::new(1, Role::Client, name).is_err(), "{name:?}");
        }
        for text in ["", "hoplo://", "hoplo://1/node", "hoplo://1/king/a", "http://1/node/a"] {
            assert!(text.parse::<Name>().is_err(), "{text:?}");
        }
    }
}
