//! What two daemons say to each other about their link, and what the machine hears and wants.

use std::fmt::Debug;
use std::sync::Arc;

use hoplo_base::NodeNumber;

/// A frame, as far as the machine looks into it.
pub trait Load: Clone + Debug {
    fn bytes(&self) -> usize;
}

impl Load for Vec<u8> {
    fn bytes(&self) -> usize {
        self.len()
    }
}

/// Made once, and neither copied nor cut.
impl Load for Arc<Vec<u8>> {
    fn bytes(&self) -> usize {
        self.len()
    }
}

/// A pair of daemons has two sockets, so that what is large delays nothing that is small.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Socket {
    Talk,
    Bulk,
}

impl Socket {
    pub const ALL: [Socket; 2] = [Socket::Talk, Socket::Bulk];

    pub(super) fn index(self) -> usize {
        match self {
            Socket::Talk => 0,
            Socket::Bulk => 1,
        }
    }
}

/// One connection of this process, never used again after it closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Connection {
    /// The machine chose the number; later ones have higher ones.
    Dialed(u64),
    /// The shell chose it.
    Accepted(u64),
}

/// One side's half of a link's identity: what this side knows of the link, from the moment when it met the peer to the
/// moment when it has to begin anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

/// The first message of who dialled, and the answer to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    pub version: u32,
    pub from: NodeNumber,
    pub to: NodeNumber,
    pub socket: Socket,
    /// The membership that the sender knows.
    pub epoch: u64,
    pub mine: Token,
    /// The receiver's, as far as the sender knows it.
    pub yours: Option<Token>,
    /// Frames of this socket that the sender has received over this link.
    pub received: u64,
    /// Of who dialled: which of its dials this is.
    pub dial: u64,
    /// The newest dial of the receiver of which the sender has a hello.
    pub seen: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message<F> {
    Hello(Hello),
    /// The connection is the link's from now on.
    Welcome(Hello),
    /// It is not; it ends here.
    Refused(Refusal),
    /// `upto`: frames that the sender has received.
    Frame {
        count: u64,
        upto: u64,
        frame: F,
    },
    Ack {
        upto: u64,
    },
    /// The connection carried nothing for long, and ends here. The link stays.
    Bye,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("{number} was declared dead, in epoch {epoch} at the latest: it has to join again")]
    Dead { number: NodeNumber, epoch: u64 },
    #[error("here is {number}, who was asked for is not here any more")]
    AnotherLife { number: NodeNumber },
    #[error("the link's protocol has version {version} here")]
    Version { version: u32 },
    /// The link that the hello names is unknown: this is the refuser's half now.
    #[error("the link is not known here any more")]
    Forgotten { mine: Token },
    /// Another connection between the two is the link's.
    #[error("another connection is in use")]
    Crossed,
    #[error("nonsense: {0}")]
    Nonsense(&'static str),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event<F> {
    /// What was dialled is connected, and its certificate is that of the node that was meant.
    Dialed {
        connection: Connection,
    },
    /// The hello of a connection that somebody else dialled; the shell has compared `from` with the certificate.
    Accepted {
        connection: Connection,
        hello: Hello,
    },
    /// Any later message, or the first one to a hello of ours.
    Received {
        connection: Connection,
        message: Message<F>,
    },
    /// It broke, or could not be made.
    Closed {
        connection: Connection,
        how: End,
    },
    /// The verdict of the members, final.
    Dead {
        number: NodeNumber,
    },
    /// This node knows the membership of this epoch.
    Epoch {
        epoch: u64,
    },
    Tick,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It was open, or in the making for unknown reasons not any more.
    Broken,
    /// Nobody listens there.
    Refused,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect<F> {
    /// Connect to that node: `Dialed`, or `Closed`.
    Dial {
        connection: Connection,
        peer: NodeNumber,
        socket: Socket,
    },
    /// After everything that was to be written to it before.
    Write {
        connection: Connection,
        message: Message<F>,
    },
    /// Once what was to be written is written, but wait for nobody. Nothing more is heard of it.
    Close {
        connection: Connection,
    },
    Deliver {
        peer: NodeNumber,
        socket: Socket,
        frame: F,
    },
    /// Who was refused a frame because the window is full may try again.
    Room {
        peer: NodeNumber,
        socket: Socket,
    },
    /// The link ended, and another one may begin: neither side's frames that are not told here, delivered or
    /// acknowledged by the other will arrive.
    Lost {
        peer: NodeNumber,
        why: LostWhy,
        talk: Unacknowledged<F>,
        bulk: Unacknowledged<F>,
    },
    /// For the members: somebody should look whether that node lives.
    Trouble {
        peer: NodeNumber,
        what: Trouble,
    },
    /// This node was declared dead.
    Fenced {
        by: NodeNumber,
        epoch: u64,
    },
    /// A peer knows a later membership.
    Behind {
        epoch: u64,
    },
}

/// In the order in which they were sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unacknowledged<F> {
    pub may_have_arrived: Vec<F>,
    pub never_sent: Vec<F>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LostWhy {
    Dead,
    /// The other side does not know the link any more.
    Forgotten,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// A connection ended without a word, or could not be made.
    Broken,
    /// Nobody listens at its address.
    Refused,
    /// It did not answer a hello in time.
    Silent,
    /// Another life listens at its address.
    AnotherLife {
        number: NodeNumber,
    },
    Version {
        theirs: u32,
    },
    /// It does not keep to the protocol.
    Nonsense(&'static str),
}

/// The frame was not taken, and comes back.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError<F> {
    /// `Room` follows.
    #[error("too much is on the way")]
    Full(F),
    #[error("that node is dead")]
    Dead(F),
    /// Of that length no frame will ever be taken.
    #[error("the frame is too long for a link")]
    TooLong(F),
}

impl<F> SendError<F> {
    pub fn is_retryable(&self) -> bool {
        match self {
            SendError::Full(_) => true,
            SendError::Dead(_) | SendError::TooLong(_) => false,
        }
    }
}
