//! A token from a file, or from a variable.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use hoplo_base::limits::TOKEN_BYTES_MAX;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use super::{FLAG, Source, Token, TokenTextError, VARIABLE};

/// No token, and where it was looked for.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    #[error(
        "no token is given: set {VARIABLE} to it, or name its file with {FLAG} (`hoplo token new` on the head makes one)"
    )]
    None,
    #[error("the token in {from}: {why}")]
    Text { from: Source, why: TokenTextError },
    #[error("{path}, which {FLAG} names: {why}")]
    File { path: PathBuf, why: FileTrouble },
}

/// Why a file is not used.
#[derive(Debug, thiserror::Error)]
pub enum FileTrouble {
    #[error("there is no such file")]
    Missing,
    #[error("it is no file")]
    NotAFile,
    #[error("it belongs to user {owner}, and this process runs as user {ours}")]
    NotOurs { owner: u32, ours: u32 },
    #[error("others may read or change it (mode {mode:04o}): `chmod 600` it, and make a new token")]
    Open { mode: u32 },
    #[error("it is longer than any token")]
    TooLong,
    #[error("{0}")]
    Io(io::Error),
}

impl Token {
    /// From this file if one is named, else from what [`VARIABLE`] says.
    pub fn find(file: Option<&Path>, variable: Option<&str>) -> Result<Self, TokenError> {
        match (file, variable) {
            (Some(path), _) => Self::read(path),
            (None, Some(text)) => Self::from_text(text, Source::Variable(VARIABLE.to_string())),
            (None, None) => Err(TokenError::None),
        }
    }

    /// What is checked is what is read: the file that was opened, and not what its name stands for a moment later. So a link is as good as
    /// the file that it names.
    pub fn read(path: &Path) -> Result<Self, TokenError> {
        let text = contents(path).map_err(|why| TokenError::File { path: path.into(), why })?;
        Self::from_text(&text, Source::File(path.into()))
    }

    fn from_text(text: &str, from: Source) -> Result<Self, TokenError> {
        Self::parse(text, from.clone()).map_err(|why| TokenError::Text { from, why })
    }
}

fn contents(path: &Path) -> Result<String, FileTrouble> {
    // Without `NONBLOCK` a pipe of that name would keep us waiting for somebody who writes.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    let opened = rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty());
    let file = opened.map_err(|errno| match errno {
        Errno::NOENT => FileTrouble::Missing,
        // Nobody reads a device or socket here.
        Errno::NXIO => FileTrouble::NotAFile,
        other => FileTrouble::Io(other.into()),
    })?;
    let found = rustix::fs::fstat(&file).map_err(|errno| FileTrouble::Io(errno.into()))?;
    if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
        return Err(FileTrouble::NotAFile);
    }
    judge(found.st_uid, rustix::process::geteuid().as_raw(), found.st_mode & 0o7777)?;
    let mut text = Vec::new();
    let most = u64::try_from(TOKEN_BYTES_MAX).expect("a few bytes");
    File::from(file).take(most + 1).read_to_end(&mut text).map_err(FileTrouble::Io)?;
    if text.len() > TOKEN_BYTES_MAX {
        return Err(FileTrouble::TooLong);
    }
    // What is no text is no token, and is told as that.
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// TOK-3.
fn judge(owner: u32, ours: u32, mode: u32) -> Result<(), FileTrouble> {
    if owner != ours {
        return Err(FileTrouble::NotOurs { owner, ours });
    }
    if mode & 0o077 != 0 {
        return Err(FileTrouble::Open { mode });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_another_user_is_not_used() {
        let error = judge(1000, 0, 0o600).unwrap_err().to_string();
        assert!(error.contains("user 1000") && error.contains("user 0"), "{error}");
        assert!(judge(1000, 1000, 0o600).is_ok());
        assert!(judge(1000, 1000, 0o400).is_ok());
        for mode in [0o640, 0o604, 0o620, 0o602, 0o610, 0o601] {
            assert!(judge(1000, 1000, mode).is_err(), "{mode:o}");
        }
    }
}
