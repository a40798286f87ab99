//! What the daemon starts in these tests: a zygote without Python, and workers that do as they are told.

use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use hoplo_shm::fds;
use hoplo_wire::node::{Role, Tell, ToClient, ToNode};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags};
use serde_json::{Value, json};

use crate::player::{Player, WELCOME_DESCRIPTORS};

/// What a driver can tell a fake worker to do; travels as the count of `Tell::Consumed`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
#[allow(dead_code, reason = "not every program gives every order")]
pub(crate) enum Order {
    Print = 1,
    KillYourself = 2,
    Exit3 = 3,
    Block = 4,
    Eat = 5,
    IgnoreExit = 6,
}

/// Speaks the protocol of `python/hoplo/_zygote.py`, but starts programs instead of forking.
pub(crate) fn zygote() {
    let number = std::env::args().next_back().unwrap().parse().expect("the descriptor's number");
    let myself = Pid::from_raw(std::process::id() as i32).unwrap();
    let myself = rustix::process::pidfd_open(myself, PidfdFlags::empty()).unwrap();
    let none = PidfdGetfdFlags::empty();
    let socket = rustix::process::pidfd_getfd(&myself, number, none).unwrap();
    let daemon = Arc::new(Mutex::new(UnixStream::from(socket.try_clone().unwrap())));
    let (mut bytes, mut descriptors) = (Vec::new(), Vec::new());
    let mut buffer = vec![0; 1 << 16];
    loop {
        let Ok(received) = fds::receive(&socket, &mut buffer) else { return };
        if received.bytes == 0 {
            return;
        }
        bytes.extend_from_slice(&buffer[..received.bytes]);
        descriptors.extend(received.fds);
        while let Some((head, body)) = bytes.split_first_chunk::<4>() {
            let len = u32::from_le_bytes(*head) as usize;
            if body.len() < len {
                break;
            }
            let message: Value = serde_json::from_slice(&body[..len]).unwrap();
            bytes.drain(..4 + len);
            if message["op"] == "fork" {
                start_worker(&daemon, &message["id"], descriptors.drain(..3).collect());
            }
        }
    }
}

fn start_worker(daemon: &Arc<Mutex<UnixStream>>, id: &Value, descriptors: Vec<OwnedFd>) {
    let [socket, stdout, stderr] = <[OwnedFd; 3]>::try_from(descriptors).unwrap().map(Stdio::from);
    let program = std::env::current_exe().unwrap();
    let mut command = Command::new(program);
    command.args(["fake_worker", "--exact", "--ignored", "--nocapture"]);
    let mut child = command.stdin(socket).stdout(stdout).stderr(stderr).spawn().unwrap();
    drop(command);
    let pid = child.id();
    tell(daemon, &json!({"op": "forked", "id": id, "pid": pid}));
    let daemon = Arc::clone(daemon);
    std::thread::spawn(move || {
        let status = child.wait().unwrap();
        let status = status.code().unwrap_or_else(|| -status.signal().unwrap());
        tell(&daemon, &json!({"op": "exited", "pid": pid, "status": status}));
    });
}

fn tell(daemon: &Mutex<UnixStream>, message: &Value) {
    let body = message.to_string().into_bytes();
    let frame = [&(body.len() as u32).to_le_bytes(), body.as_slice()].concat();
    let _ = daemon.lock().unwrap().write_all(&frame);
}

/// Its socket is its standard input.
pub(crate) fn worker() {
    let mut player = Player::on(std::io::stdin().as_fd().try_clone_to_owned().unwrap());
    player.patient();
    player.hello(Role::Worker);
    // What comes with a message of later is the first then.
    let _of_the_welcome = [(); WELCOME_DESCRIPTORS].map(|()| player.take_fd());
    let mut obedient = true;
    loop {
        while let Some(message) = player.take_message() {
            match message {
                ToClient::Connected { .. } => {
                    let mut channel = std::fs::File::from(player.take_fd());
                    let _ = channel.write_all(b"connected");
                }
                ToClient::RunActor { spec, incarnation, .. } => {
                    let (actor, result) = (spec.actor, Ok(()));
                    player.send(&ToNode::ActorStarted { actor, incarnation, result });
                }
                ToClient::Exit { .. } if obedient => std::process::exit(0),
                ToClient::Told { message: Tell::Consumed { count, .. }, .. } => match count {
                    1 => println!("the last word"),
                    2 => crate::player::kill(std::process::id() as i32),
                    3 => std::process::exit(3),
                    4 => player.send(&ToNode::Blocked),
                    5 => eat(),
                    6 => obedient = false,
                    _ => panic!("there is no order {count}"),
                },
                _ => {}
            }
        }
        if !player.hear() {
            break;
        }
    }
    if !obedient {
        // It does not notice that the daemon is gone either.
        let (_end, mut nothing) = UnixStream::pair().unwrap();
        let _ = nothing.read(&mut [0]);
    }
}

fn eat() {
    let mut eaten = Vec::new();
    loop {
        eaten.push(vec![1u8; 8 << 20]);
        std::thread::yield_now();
        assert!(eaten.len() < 64, "nobody stopped it at half a gigabyte");
    }
}
