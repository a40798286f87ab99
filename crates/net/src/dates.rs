//! Times, as people read them.

use rustls::pki_types::UnixTime;

/// `2026-03-01 12:34 UTC`.
pub(crate) fn utc(time: UnixTime) -> String {
    let seconds = time.as_secs();
    let (days, minutes) = (seconds / 86_400, seconds % 86_400 / 60);
    // Howard Hinnant's days to civil: years begin in March, 400 of them are an era.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (year, month) = match month {
        0..=9 => (era * 400 + year, month + 3),
        _ => (era * 400 + year + 1, month - 9),
    };
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02} UTC", minutes / 60, minutes % 60)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::tls::LAST_SECOND;

    #[test]
    fn a_time_is_told_as_people_read_it() {
        let told = |seconds| utc(UnixTime::since_unix_epoch(Duration::from_secs(seconds)));
        assert_eq!(told(0), "1970-01-01 00:00 UTC");
        assert_eq!(told(951_782_400), "2000-02-29 00:00 UTC");
        assert_eq!(told(1_795_342_139), "2026-11-22 10:08 UTC");
        assert_eq!(told(LAST_SECOND), "9999-12-31 23:59 UTC");
    }
}
