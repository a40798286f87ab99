//! Labels of nodes: what a key and a value may be. The rules are those of Kubernetes, and of Ray.

use std::collections::BTreeMap;

/// A key or a value, and the name in a prefix's place, have so many characters at most.
const NAME_CHARS_MAX: usize = 63;
const PREFIX_CHARS_MAX: usize = 253;

/// What nodes are given by themselves begins with these.
const OURS: [&str; 2] = ["hoplo.io", "ray.io"];

/// A label that no node may have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LabelError {
    #[error(
        "{0:?} is no key of a label: a key has 1 to {NAME_CHARS_MAX} letters, digits, '-', '_' or '.' of ASCII, begins and ends with a \
         letter or digit, and may have a domain and '/' in front, like example.com/zone"
    )]
    Key(String),
    #[error(
        "{value:?} is no value of the label {key}: a value is empty, or has {NAME_CHARS_MAX} letters, digits, '-', '_' or '.' of ASCII at most, \
         and begins and ends with a letter or digit"
    )]
    Value { key: String, value: String },
    #[error(
        "the label {0} is not yours to give: nodes are given those that begin with hoplo.io/ or ray.io/"
    )]
    Ours(String),
}

/// Those that somebody gives a node.
pub fn check(labels: &BTreeMap<String, String>) -> Result<(), LabelError> {
    for (key, value) in labels {
        let (prefix, name) = match key.split_once('/') {
            Some((prefix, name)) => (Some(prefix), name),
            None => (None, key.as_str()),
        };
        if !is_name(name) || !prefix.is_none_or(is_domain) {
            return Err(LabelError::Key(key.clone()));
        }
        if prefix.is_some_and(|prefix| OURS.contains(&prefix)) {
            return Err(LabelError::Ours(key.clone()));
        }
        if !value.is_empty() && !is_name(value) {
            return Err(LabelError::Value { key: key.clone(), value: value.clone() });
        }
    }
    Ok(())
}

fn is_name(text: &str) -> bool {
    let inside = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    text.len() <= NAME_CHARS_MAX && text.bytes().all(inside) && has_ends(text)
}

fn is_domain(text: &str) -> bool {
    let inside = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_part = |part: &str| part.bytes().all(inside) && has_ends(part);
    text.len() <= PREFIX_CHARS_MAX && text.split('.').all(is_part)
}

fn has_ends(text: &str) -> bool {
    let ends = [text.bytes().next(), text.bytes().last()];
    ends.into_iter().all(|end| end.is_some_and(|byte| byte.is_ascii_alphanumeric()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(key: &str, value: &str) -> Result<(), LabelError> {
        check(&BTreeMap::from([(key.to_string(), value.to_string())]))
    }

    #[test]
    fn labels_that_no_selector_can_name_were_taken() {
        let long = "x".repeat(63);
        for key in ["zone", "a", "A-b_c.9", "example.com/zone", "x/y", long.as_str()] {
            assert_eq!(one(key, "b"), Ok(()), "{key}");
        }
        for value in ["", "b", "1.5", "us-west_1", long.as_str()] {
            assert_eq!(one("zone", value), Ok(()), "{value}");
        }
        let longer = "x".repeat(64);
        let domain = format!("{}/a", "x".repeat(254));
        let keys = ["", "a b!", "-a", "a-", "größe", "/a", "a/", "a/b/c", "A.com/a", "a..b/c"];
        for key in keys.into_iter().chain([longer.as_str(), &domain]) {
            assert!(matches!(one(key, "b"), Err(LabelError::Key(_))), "{key}");
        }
        for value in ["in(x", "!b", "a b", "2 m", ".", "a-", "\n", longer.as_str()] {
            let error = one("zone", value).unwrap_err();
            assert!(matches!(error, LabelError::Value { .. }), "{value}");
            let text = error.to_string();
            assert!(text.contains("label zone") && !text.contains('\n'), "{text}");
        }
        for key in ["hoplo.io/node-id", "hoplo.io/python", "ray.io/node-id"] {
            assert_eq!(one(key, "b"), Err(LabelError::Ours(key.to_string())));
        }
        let text = one("a b!", "x").unwrap_err().to_string();
        assert!(
            text.starts_with("\"a b!\" is no key of a label: a key has 1 to 63 letters"),
            "{text}"
        );
    }
}
