//! One suite for every store.

mod nodes;

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use hoplo_base::NodeId;
use hoplo_wire::control::{
    ChainConfig, ClusterConfig, ClusterId, Epoch, Member, ReplicaId, ShardId,
};

use super::{ConfigStore, EtcdStore, FileStore, StoreError, Swapped};

fn config(epoch: u64) -> ClusterConfig {
    let replica = ReplicaId { node: NodeId(7), incarnation: u64::MAX };
    let chain = ChainConfig {
        shard: ShardId(0),
        epoch: Epoch(epoch),
        members: vec![Member { replica, address: "127.0.0.1:7000".to_string() }],
        joining: None,
        added: None,
        old_tail_gone: false,
        history: Epoch::first(),
        unbegun: false,
    };
    ClusterConfig {
        cluster: ClusterId(u128::MAX - 3),
        replication: 2,
        shards: vec![chain],
        acting: None,
        wishes: Vec::new(),
    }
}

/// `open` gives a new handle on the same, new and empty place each time.
fn conforms(open: &mut dyn FnMut() -> Box<dyn ConfigStore>) {
    let (mut a, mut b) = (open(), open());
    assert_eq!(a.load(), Ok(None));
    assert_eq!(a.swap(Some(1), &config(1)), Ok(Swapped::Conflict), "there is nothing to replace");
    assert_eq!(a.load(), Ok(None));

    let Ok(Swapped::Stored(first)) = a.swap(None, &config(1)) else { panic!("not stored") };
    assert_eq!(b.load(), Ok(Some((first, config(1)))), "another sees it");
    assert_eq!(b.swap(None, &config(9)), Ok(Swapped::Conflict), "there is one already");

    let Ok(Swapped::Stored(second)) = b.swap(Some(first), &config(2)) else { panic!("not stored") };
    assert!(second > first, "STORE-1");
    assert_eq!(a.swap(Some(first), &config(3)), Ok(Swapped::Conflict), "STORE-2");
    assert_eq!(a.load(), Ok(Some((second, config(2)))));
    drop((a, b));
    assert_eq!(open().load(), Ok(Some((second, config(2)))), "STORE-3");

    // STORE-2 again, with all at once.
    let revision = second;
    let stores: Vec<Box<dyn ConfigStore>> = (0..4).map(|_| open()).collect();
    let swaps: Vec<_> = stores
        .into_iter()
        .enumerate()
        .map(|(n, mut store)| {
            std::thread::spawn(move || store.swap(Some(revision), &config(10 + n as u64)))
        })
        .collect();
    let swaps: Vec<_> = swaps.into_iter().map(|swap| swap.join().unwrap().unwrap()).collect();
    let stored = swaps.iter().filter(|swap| matches!(swap, Swapped::Stored(_))).count();
    assert_eq!(stored, 1, "{swaps:?}");
}

fn folder(name: &str) -> std::path::PathBuf {
    let folder = std::env::temp_dir().join(format!("hoplo-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

#[test]
fn a_file_conforms() {
    let folder = folder("config-file");
    conforms(&mut || Box::new(FileStore::new(folder.join("config.json"))));
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_swap_that_a_crash_tore_leaves_what_was_before() {
    let folder = folder("config-torn");
    let path = folder.join("config.json");
    let mut store = FileStore::new(path.clone());
    let mut revision = None;
    for epoch in 1..=4 {
        let Ok(Swapped::Stored(next)) = store.swap(revision, &config(epoch)) else { panic!() };
        revision = Some(next);
    }
    let whole = std::fs::read(folder.join("config.json.other")).unwrap();
    // The file of the last swap, cut and damaged everywhere.
    for at in (0..whole.trim_ascii_end().len()).step_by(7) {
        let mut torn = whole.clone();
        torn[at.max(20)..].fill(b'\n');
        std::fs::write(folder.join("config.json.other"), &torn).unwrap();
        assert_eq!(store.load(), Ok(Some((3, config(3)))), "cut at {at}");
    }
    let mut damaged = whole;
    let digit = damaged.windows(9).position(|text| text == b"\"epoch\":4").unwrap() + 8;
    damaged[digit] = b'7';
    std::fs::write(folder.join("config.json.other"), &damaged).unwrap();
    assert_eq!(store.load(), Ok(Some((3, config(3)))));
    assert!(matches!(store.swap(Some(3), &config(9)), Ok(Swapped::Stored(4))));
    assert_eq!(store.load(), Ok(Some((4, config(9)))));
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_file_that_is_something_else_is_refused_by_name() {
    let folder = folder("config-odd");
    let path = folder.join("config.json");
    std::fs::write(&path, "[1, 2]").unwrap();
    let mut store = FileStore::new(path.clone());
    assert!(matches!(store.load(), Err(StoreError::Unreadable { .. })));
    std::fs::write(&path, r#"{"format": 2, "anything": "else"}"#).unwrap();
    let error = store.load().unwrap_err().to_string();
    assert!(error.contains("format 2") && error.contains("config.json"), "{error}");
    std::fs::remove_dir_all(&folder).unwrap();
}

struct Etcd {
    process: Child,
    port: u16,
}

impl Etcd {
    /// Absent where etcd is not installed.
    fn start(folder: &std::path::Path) -> Option<Self> {
        let free = || {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            listener.local_addr().unwrap().port()
        };
        let (port, peers) = (free(), free());
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let process = Command::new("etcd")
            .arg("--data-dir")
            .arg(folder)
            .args(["--listen-client-urls", &url(port), "--advertise-client-urls", &url(port)])
            .args(["--listen-peer-urls", &url(peers)])
            .args(["--initial-advertise-peer-urls", &url(peers)])
            .args(["--initial-cluster", &format!("default={}", url(peers))])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        Some(Self { process, port })
    }

    fn store(&self) -> EtcdStore {
        EtcdStore::parse(&format!("http://127.0.0.1:{}/hoplo/test", self.port)).unwrap()
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn etcd_conforms() {
    let folder = folder("config-etcd");
    let Some(mut etcd) = Etcd::start(&folder) else {
        eprintln!("etcd is not installed: its store is not tested");
        return;
    };
    let until = Instant::now() + Duration::from_secs(20);
    while let Err(error) = etcd.store().load() {
        assert!(Instant::now() < until, "etcd did not start: {error}");
        std::thread::yield_now();
    }
    conforms(&mut || Box::new(etcd.store()));

    etcd.process.kill().unwrap();
    etcd.process.wait().unwrap();
    let error = etcd.store().load().unwrap_err();
    assert!(matches!(error, StoreError::Unreachable { .. }), "{error}");
    drop(etcd);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_name_that_names_no_store_is_refused() {
    let names =
        ["", "node", "file:", "zk:here", "etcd:http://", "etcd:http:///key", "etcd:http://a:1/"];
    for name in names {
        assert!(super::place(name).is_err(), "{name:?}");
    }
}
