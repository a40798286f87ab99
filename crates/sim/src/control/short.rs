//! Stories that people can read: what `Debug` prints, shortened.

/// `ReplicaId { node: NodeId(1), incarnation: 2 }` becomes `1.2`, bytes become text, wrappers go.
pub fn short(line: &str) -> String {
    let mut text = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(first) = rest.chars().next() {
        if let Some((id, after)) = replica(rest) {
            text += &id;
            rest = after;
        } else if let Some((bytes, after)) = bytes(rest) {
            text += &bytes;
            rest = after;
        } else if let Some((inner, after)) = wrapped(rest) {
            text += inner;
            rest = after;
        } else {
            text.push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    text
}

fn replica(text: &str) -> Option<(String, &str)> {
    let rest = text.strip_prefix("ReplicaId { node: NodeId(")?;
    let (node, rest) = rest.split_once("), incarnation: ")?;
    let (incarnation, rest) = rest.split_once(" }")?;
    Some((format!("{node}.{incarnation}"), rest))
}

/// `[107, 49]` becomes `"k1"`, at most a few of them.
fn bytes(text: &str) -> Option<(String, &str)> {
    let rest = text.strip_prefix('[')?;
    let (inside, rest) = rest.split_once(']')?;
    let numbers: Option<Vec<u8>> = inside.split(", ").map(|it| it.parse().ok()).collect();
    let numbers = numbers?;
    let shown = numbers.iter().take_while(|it| **it != b'x').map(|it| char::from(*it));
    Some((format!("{:?}", shown.take(24).collect::<String>()), rest))
}

fn wrapped(text: &str) -> Option<(&str, &str)> {
    for wrapper in ["Epoch(", "ShardId(", "ClientId("] {
        if let Some(rest) = text.strip_prefix(wrapper) {
            return rest.split_once(')');
        }
    }
    None
}
