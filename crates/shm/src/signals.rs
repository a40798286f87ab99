//! What a process inherits of signals, and nobody wants: those that whoever started it had blocked or ignored.
//!
//! A program that blocks SIGINT, or ignores it as shells make what they start in the background do, would have a
//! daemon that cannot reap its children, and workers that no `cancel` reaches. (A handler does not pass `exec`;
//! what is blocked or ignored does.)

/// Signals that a program may have had reason to ignore for itself alone. SIGPIPE stays ignored: Rust and
/// Python want a broken pipe as an error.
const WANTED: [libc::c_int; 8] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGCHLD,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGALRM,
];

/// In a process with one thread, before it installs handlers: nothing is blocked, and signals do what they do by
/// default.
pub fn reset() {
    for signal in WANTED {
        // SAFETY: no handler is installed, only the default.
        let before = unsafe { libc::signal(signal, libc::SIG_DFL) };
        assert!(before != libc::SIG_ERR, "signal {signal} exists");
    }
    // SAFETY: any bytes are a valid set, and it is made empty before it is used.
    unsafe {
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::pthread_sigmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
    }
}
