//! Strangers that were closed before they had said what they want: counted, and told to people now and then.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Instant;

use hoplo_base::limits::{NET_UNHEARD_ADDRESSES_MAX, NET_UNHEARD_GATHERED, NET_UNHEARD_TOLD};

#[derive(Debug, Default)]
pub(super) struct Unheard {
    /// Since it was told last.
    count: u64,
    by: BTreeMap<IpAddr, u64>,
    /// When the first of these was closed.
    since: Option<Instant>,
    /// When it is told; absent as long as all had their time: a few that come and say nothing are nobody's trouble.
    told_at: Option<Instant>,
    told_last: Option<Instant>,
}

impl Unheard {
    /// `crowded`: there was no room for it.
    pub(super) fn closed(&mut self, now: Instant, from: IpAddr, crowded: bool) {
        self.count += 1;
        let since = *self.since.get_or_insert(now);
        if self.by.len() < NET_UNHEARD_ADDRESSES_MAX || self.by.contains_key(&from) {
            *self.by.entry(from).or_default() += 1;
        }
        if crowded && self.told_at.is_none() {
            let again = self.told_last.map_or(since, |last| last + NET_UNHEARD_TOLD);
            self.told_at = Some(again.max(now + NET_UNHEARD_GATHERED));
        }
    }

    pub(super) fn due(&self) -> Option<Instant> {
        self.told_at
    }

    /// What to say, if it is time.
    pub(super) fn told(&mut self, now: Instant) -> Option<String> {
        self.told_at.filter(|at| *at <= now)?;
        let since = self.since.expect("some were closed");
        let seconds = now.saturating_duration_since(since).as_secs().max(1);
        let (from, most) = self.by.iter().max_by_key(|(_, count)| **count)?;
        let text = format!(
            "{} connections to this port were closed within {seconds} s before they had said what they want: it has no room for so many at once. \
             {most} of them came from {from}. Whoever joins may have to try again; a firewall can keep strangers away",
            self.count
        );
        *self = Self { told_last: Some(now), ..Self::default() };
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn host(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    #[test]
    fn a_crowd_is_told_once_in_a_while_and_who_most_of_it_were() {
        let (mut unheard, mut now) = (Unheard::default(), Instant::now());
        let begun = now;
        let mut told = Vec::new();
        while now < begun + Duration::from_secs(100) {
            unheard.closed(now, host(1), true);
            unheard.closed(now, host(1), false);
            unheard.closed(now, host(2), true);
            now += Duration::from_millis(100);
            told.extend(unheard.told(now).map(|text| (now - begun, text)));
        }
        let at: Vec<u64> = told.iter().map(|(at, _)| at.as_secs()).collect();
        assert_eq!(at, [1, 61]);
        assert!(
            told[0].1.starts_with("30 connections to this port were closed within 1 s"),
            "{told:?}"
        );
        assert!(told[0].1.contains("20 of them came from 10.0.0.1."), "{told:?}");
        assert!(told[1].1.starts_with("1800 connections"), "{told:?}");
    }

    #[test]
    fn a_few_that_say_nothing_are_not_told_and_addresses_are_bounded() {
        let (mut unheard, now) = (Unheard::default(), Instant::now());
        for number in 0..5000_u32 {
            unheard.closed(now, IpAddr::from(number.to_be_bytes()), false);
        }
        assert_eq!((unheard.due(), unheard.by.len()), (None, NET_UNHEARD_ADDRESSES_MAX));
        assert_eq!(unheard.told(now + NET_UNHEARD_TOLD * 2), None);
    }
}
