//! A thread: it does one thing after the other, and is never interrupted.

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Server {
    free_at: u64,
    /// So long it has worked.
    pub busy: u64,
    pub turns: u64,
    /// The longest that something had to wait for its turn.
    pub waited_most: u64,
}

impl Server {
    /// Something comes that takes so long; returns when it is done.
    pub fn takes(&mut self, now: u64, ns: u64) -> u64 {
        let begins = self.free_at.max(now);
        self.waited_most = self.waited_most.max(begins - now);
        self.free_at = begins + ns;
        self.busy += ns;
        self.turns += 1;
        self.free_at
    }

    pub fn free_at(&self) -> u64 {
        self.free_at
    }

    /// What was until now counts no more.
    pub fn begin(&mut self) {
        (self.busy, self.turns, self.waited_most) = (0, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::Server;

    #[test]
    fn what_comes_while_it_works_waits() {
        let mut server = Server::default();
        assert_eq!(server.takes(100, 50), 150);
        assert_eq!(server.takes(120, 50), 200);
        assert_eq!(server.takes(500, 50), 550);
        assert_eq!((server.busy, server.turns, server.waited_most), (150, 3, 30));
    }
}
