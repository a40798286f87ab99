//! What the cluster keeps of a token.

use std::time::SystemTime;

use hoplo_wire::join::TokenId;
use webpki::ring::ED25519;

use super::Token;
use crate::name::Role;

/// A row of the control store: `hoplo token list` shows it, and who removes it revokes the token. Whoever reads
/// it cannot join (TOK-1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRecord {
    pub id: TokenId,
    /// Of the key that the secret is the seed of.
    pub public_key: [u8; 32],
    /// As what one may join with it.
    pub role: Role,
    pub created: SystemTime,
    pub expires: SystemTime,
    /// How many joined with it, and how many may; absent: any number.
    pub uses: u32,
    pub uses_max: Option<u32>,
}

/// Nobody joins with it any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    Expired,
    UsedUp,
}

impl TokenRecord {
    pub fn of(
        token: &Token,
        role: Role,
        created: SystemTime,
        expires: SystemTime,
        uses_max: Option<u32>,
    ) -> Self {
        let key = token.key();
        let public_key = key.public_key_raw().try_into().expect("an Ed25519 key has 32 bytes");
        Self { id: token.id(), public_key, role, created, expires, uses: 0, uses_max }
    }

    /// Whether it is still good. Whoever spends a use asks again, where rows are changed.
    pub fn fit(&self, now: SystemTime) -> Result<(), Unfit> {
        if now >= self.expires {
            return Err(Unfit::Expired);
        }
        if self.uses_max.is_some_and(|max| self.uses >= max) {
            return Err(Unfit::UsedUp);
        }
        Ok(())
    }

    /// Whether who has the token signed that.
    pub(crate) fn has_signed(&self, message: &[u8], signature: &[u8]) -> bool {
        ED25519.verify_signature(&self.public_key, message, signature).is_ok()
    }
}
