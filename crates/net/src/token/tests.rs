use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::*;
use crate::name::Role;

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("hoplo-token-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    fn holds(&self, name: &str, text: &str, mode: u32) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn token() -> Token {
    Token::make(Fingerprint::of(b"an authority")).unwrap()
}

fn parse(text: &str) -> Result<Token, TokenTextError> {
    Token::parse(text, Source::Made)
}

#[test]
fn a_token_that_was_cut_or_mistyped_is_told_as_such() {
    let token = token();
    let text = token.reveal();
    let again = parse(&format!(" {}\n", text.to_uppercase())).unwrap();
    assert_eq!((again.secret, again.authority), (token.secret, token.authority));
    assert_eq!(parse("").err(), Some(TokenTextError::Empty));
    assert_eq!(parse("\n").err(), Some(TokenTextError::Empty));
    for len in 1..text.len() {
        let error = parse(&text[..len]).unwrap_err();
        let expected = match len {
            0..7 => TokenTextError::Other,
            _ => TokenTextError::Length { len },
        };
        assert_eq!(error, expected);
    }
    assert_eq!(parse(&format!("{text}{text}")).err(), Some(TokenTextError::Length { len: 288 }));
    for place in 7..text.len() {
        for wrong in ["0", "f", ".", "x", "é"] {
            let typed = format!("{}{wrong}{}", &text[..place], &text[place + 1..]);
            if typed != text {
                assert_eq!(parse(&typed).err(), Some(TokenTextError::Mistyped), "{place} {wrong}");
            }
        }
    }
    assert_eq!(parse(&text.replace("hoplo1", "hoplo2")).err(), Some(TokenTextError::Version));
    assert_eq!(parse("hoplo.x").err(), Some(TokenTextError::Other));
}

#[test]
fn nothing_that_is_printed_shows_the_secret() {
    let token = token();
    let text = token.reveal();
    let secret = &text[text.rfind('.').unwrap() + 1..];
    let now = SystemTime::now();
    let record = TokenRecord::of(&token, Role::Node, now, now, None);
    let mut shown = vec![format!("{token:?}"), format!("{record:?}")];
    let mistyped = format!("{}x", &text[..text.len() - 1]);
    for wrong in [&text[1..], &text[..text.len() - 1], &mistyped, &format!("{text}.")] {
        let error = Token::find(None, Some(wrong)).unwrap_err();
        shown.extend([format!("{error}"), format!("{error:?}")]);
    }
    for shown in shown {
        for part in secret.as_bytes().chunks(8) {
            let part = std::str::from_utf8(part).unwrap();
            assert!(!shown.contains(part), "{shown}");
        }
        let bytes = format!("{}, {}, {}", token.secret[0], token.secret[1], token.secret[2]);
        assert!(!shown.contains(&bytes), "{shown}");
    }
}

#[test]
fn what_the_cluster_keeps_proves_a_signature_and_makes_none() {
    let (mine, other) = (token(), token());
    let now = SystemTime::now();
    let record = TokenRecord::of(&mine, Role::Node, now, now + Duration::from_secs(9), Some(1));
    assert_eq!(record.id, mine.id());
    assert_ne!(record.id, other.id());
    assert!(record.has_signed(b"message", &mine.sign(b"message")));
    assert!(!record.has_signed(b"massage", &mine.sign(b"message")));
    assert!(!record.has_signed(b"message", &other.sign(b"message")));
    assert!(!record.has_signed(b"message", b""));
    // TOK-1: a token made of what the record says is another one.
    let of_record = Token { secret: record.public_key, ..mine.clone() };
    assert!(!record.has_signed(b"message", &of_record.sign(b"message")));
}

#[test]
fn a_token_is_over_when_it_expired_or_was_used_up() {
    let (now, second) = (SystemTime::now(), Duration::from_secs(1));
    let mut record = TokenRecord::of(&token(), Role::Node, now, now + second, Some(2));
    assert_eq!(record.fit(now), Ok(()));
    assert_eq!(record.fit(now + second), Err(Unfit::Expired));
    record.uses = 2;
    assert_eq!(record.fit(now), Err(Unfit::UsedUp));
    record.uses_max = None;
    assert_eq!(record.fit(now), Ok(()));
}

#[test]
fn a_file_that_others_may_read_is_not_used_and_is_named() {
    let folder = Folder::new("files");
    let text = token().reveal();
    let read = |path: &Path| Token::read(path);
    let why = |path: &Path| {
        let error = read(path).unwrap_err().to_string();
        assert!(error.starts_with(&format!("{}, which --token-file", path.display())), "{error}");
        assert!(!error.contains('\n'), "{error}");
        error
    };
    let good = folder.holds("good", &format!("{text}\n"), 0o600);
    let token = read(&good).unwrap();
    assert_eq!(token.reveal(), text);
    assert_eq!(token.from(), &Source::File(good.clone()));
    for mode in [0o644, 0o640, 0o620, 0o666] {
        let error = why(&folder.holds("open", &text, mode));
        assert!(error.contains("chmod 600") && error.contains(&format!("{mode:04o}")), "{error}");
    }
    let link = folder.0.join("link");
    // As secrets are mounted. What counts is the file that is read.
    symlink(&good, &link).unwrap();
    assert_eq!(read(&link).unwrap().reveal(), text);
    let to_open = folder.0.join("to-open");
    symlink(folder.holds("open", &text, 0o644), &to_open).unwrap();
    assert!(why(&to_open).contains("chmod 600"));
    let round = folder.0.join("round");
    symlink(&round, &round).unwrap();
    why(&round);
    let nowhere = folder.0.join("nowhere");
    symlink(folder.0.join("none"), &nowhere).unwrap();
    assert!(why(&nowhere).contains("no such file"));
    assert!(why(&folder.0.join("none")).contains("no such file"));
    assert!(why(&folder.0).contains("no file"));
    let long = folder.holds("long", &"x".repeat(5000), 0o600);
    assert!(why(&long).contains("longer"));
    let pipe = folder.0.join("pipe");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &pipe,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    assert!(why(&pipe).contains("no file"));
    let cut = folder.holds("cut", &text[..40], 0o600);
    let error = read(&cut).unwrap_err().to_string();
    assert!(error.contains("cut") && error.contains("40 characters"), "{error}");
    assert!(error.contains(&cut.display().to_string()), "{error}");
    let bytes = folder.0.join("bytes");
    std::fs::write(&bytes, [0xff; 10]).unwrap();
    std::fs::set_permissions(&bytes, std::fs::Permissions::from_mode(0o600)).unwrap();
    assert!(matches!(read(&bytes), Err(TokenError::Text { why: TokenTextError::Other, .. })));
}

#[test]
fn no_token_at_all_is_told_with_the_variable_and_the_flag() {
    let error = Token::find(None, None).unwrap_err().to_string();
    assert!(error.contains(VARIABLE) && error.contains(FLAG), "{error}");
    let error = Token::find(None, Some("x")).unwrap_err().to_string();
    assert!(error.contains(VARIABLE), "{error}");
    let text = token().reveal();
    assert_eq!(Token::find(None, Some(&text)).unwrap().reveal(), text);
    // A file that is named comes before the variable.
    let error = Token::find(Some(Path::new("/no/such/token")), Some(&text)).unwrap_err();
    assert!(matches!(error, TokenError::File { why: FileTrouble::Missing, .. }), "{error}");
}
