//! Messages between nodes as a hub carries them, and who may say hello as which node.

use hoplo_base::limits::NET_GREETING_BYTES_MAX;
use hoplo_net::name::{Name, Role};
use hoplo_net::{Admitted, Malformed, Meaning, NotAdmitted, Protocol, Purpose, Standing};
use hoplo_wire::member::{Hello, Message, PROTOCOL};
use hoplo_wire::node::{decode, encode};

#[derive(Debug)]
pub(super) struct Between;

impl Protocol for Between {
    const PURPOSE: Purpose = Purpose::Link;

    type Frame = Message;
    type Hello = Hello;

    fn encode(message: &Message, out: &mut Vec<u8>) {
        encode(message, out);
    }

    fn decode(body: &[u8]) -> Result<Message, Malformed> {
        decode(body).map_err(|error| Malformed { bytes: body.len(), why: error.to_string() })
    }

    fn hello(hello: Hello) -> Message {
        Message::Hello(hello)
    }

    fn refusal(why: String) -> Message {
        Message::Refused { why }
    }

    fn meaning(message: Message) -> Meaning<Self> {
        match message {
            Message::Hello(hello) => Meaning::Hello(hello),
            Message::Refused { why } => Meaning::Refusal(why),
            other => Meaning::Other(other),
        }
    }

    fn name(message: &Message) -> &'static str {
        message.name()
    }

    fn admit(ours: &Hello, theirs: &Hello, shown: Option<&Name>) -> Result<Admitted, NotAdmitted> {
        if ours.protocol != theirs.protocol {
            return Err(NotAdmitted::Mismatch(format!(
                "{} and {} do not understand each other (protocols {} and {}): use one version on all nodes",
                ours.program, theirs.program, ours.protocol, theirs.protocol
            )));
        }
        let shown =
            shown.ok_or_else(|| NotAdmitted::Claim("it shows no certificate".to_string()))?;
        if theirs.cluster != ours.cluster || shown.cluster != ours.cluster.0 {
            let theirs = theirs.cluster.0;
            let why = format!("cluster {:032x} and cluster {theirs:032x} are two", ours.cluster.0);
            return Err(NotAdmitted::Mismatch(why));
        }
        may_be(theirs, shown).map_err(NotAdmitted::Claim)?;
        // There is always room for nodes: their number is that of their certificates.
        Ok(Admitted { standing: Standing::Member, frame_bytes_max: NET_GREETING_BYTES_MAX })
    }

    fn describe(theirs: &Hello) -> String {
        theirs.node.to_string()
    }
}

/// A node's certificate names its number; a head's says only that it is the head.
fn may_be(theirs: &Hello, shown: &Name) -> Result<(), String> {
    let numbered = format!("{:x}", theirs.node.number());
    match shown.role {
        Role::Control => Ok(()),
        Role::Node if shown.name() == numbered => Ok(()),
        Role::Node | Role::Client | Role::Operator => {
            Err(format!("the certificate of {shown} is not that of {}", theirs.node))
        }
    }
}

pub(super) fn hello(
    cluster: hoplo_wire::control::ClusterId,
    node: hoplo_base::NodeNumber,
) -> Hello {
    let program = concat!("hoplo ", env!("CARGO_PKG_VERSION")).to_string();
    Hello { protocol: PROTOCOL, program, cluster, node }
}

#[cfg(test)]
mod tests {
    use hoplo_base::NodeNumber;
    use hoplo_wire::control::ClusterId;

    use super::*;

    #[test]
    fn a_node_is_who_its_certificate_says() {
        let (one, two) = (NodeNumber::first_given(0), NodeNumber::first_given(0).next_given());
        let ours = hello(ClusterId(7), one);
        let theirs = hello(ClusterId(7), two);
        let name = |role, name: &str| Name::new(7, role, name).unwrap();
        let mine = name(Role::Node, &format!("{:x}", two.number()));
        assert!(Between::admit(&ours, &theirs, Some(&mine)).is_ok());
        assert!(Between::admit(&ours, &theirs, Some(&name(Role::Control, "head"))).is_ok());
        let others = name(Role::Node, &format!("{:x}", one.number()));
        for wrong in [others, name(Role::Client, "x"), name(Role::Operator, "x")] {
            let refused = Between::admit(&ours, &theirs, Some(&wrong)).unwrap_err();
            assert!(matches!(refused, NotAdmitted::Claim(_)), "{refused:?}");
        }
        assert!(matches!(Between::admit(&ours, &theirs, None), Err(NotAdmitted::Claim(_))));
        let elsewhere = hello(ClusterId(8), two);
        let refused = Between::admit(&ours, &elsewhere, Some(&mine)).unwrap_err();
        assert!(matches!(refused, NotAdmitted::Mismatch(_)));
        let older = Hello { protocol: 0, ..theirs };
        let refused = Between::admit(&ours, &older, Some(&mine)).unwrap_err().to_string();
        assert!(refused.contains("one version"), "{refused}");
    }
}
