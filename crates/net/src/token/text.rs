//! A token as text.

use super::{Fingerprint, SECRET_BYTES, Source, Token};

/// The text is no token. It is never shown: it may nearly be one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenTextError {
    #[error("it is empty")]
    Empty,
    #[error("no token begins like that: one begins with \"hoplo1.\"")]
    Other,
    #[error("another version of hoplo made it: here a token begins with \"hoplo1.\"")]
    Version,
    #[error("it has {len} characters, and a token has {LEN}: it was cut, or something follows it")]
    Length { len: usize },
    #[error("it is mistyped: copy it again")]
    Mistyped,
}

const BEGIN: &str = "hoplo1.";
const CHECK_BYTES: usize = 4;
const LEN: usize = BEGIN.len() + 2 * 32 + 1 + 2 * (SECRET_BYTES + CHECK_BYTES);

pub(super) fn write(authority: &Fingerprint, secret: &[u8; SECRET_BYTES]) -> String {
    let mut text = format!("{BEGIN}{authority}.");
    hex(secret, &mut text);
    let check = check(&text);
    hex(&check, &mut text);
    text
}

impl Token {
    /// Blanks around it are no part of it.
    pub fn parse(text: &str, from: Source) -> Result<Self, TokenTextError> {
        let text = text.trim().to_ascii_lowercase();
        if text.is_empty() {
            return Err(TokenTextError::Empty);
        }
        let Some(rest) = text.strip_prefix(BEGIN) else {
            let version = text.strip_prefix("hoplo").and_then(|rest| rest.split_once('.'));
            let digits = |it: &str| !it.is_empty() && it.bytes().all(|it| it.is_ascii_digit());
            let is_other = version.is_some_and(|(version, _)| digits(version));
            return Err(if is_other { TokenTextError::Version } else { TokenTextError::Other });
        };
        let len = text.chars().count();
        if len != LEN {
            return Err(TokenTextError::Length { len });
        }
        let parsed = || {
            let (authority, rest) = rest.split_once('.')?;
            let (secret, said) = rest.split_at_checked(2 * SECRET_BYTES)?;
            let checked = text.get(..LEN - 2 * CHECK_BYTES)?;
            let (authority, secret) = (Fingerprint(unhex(authority)?), unhex(secret)?);
            (unhex(said)? == check(checked)).then_some((authority, secret))
        };
        let (authority, secret) = parsed().ok_or(TokenTextError::Mistyped)?;
        Ok(Self { authority, secret, from })
    }
}

fn check(text: &str) -> [u8; CHECK_BYTES] {
    *blake3::hash(text.as_bytes()).as_bytes().first_chunk().expect("32 bytes")
}

fn hex(bytes: &[u8], out: &mut String) {
    for byte in bytes {
        for digit in [byte >> 4, byte & 15] {
            out.push(char::from_digit(u32::from(digit), 16).expect("below 16"));
        }
    }
}

fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.as_bytes();
    if digits.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let digit = |it: u8| char::from(it).to_digit(16);
        *byte = u8::try_from(digit(pair[0])? << 4 | digit(pair[1])?).ok()?;
    }
    Some(bytes)
}
