//! A folder in memory, which does to a log what disks do: it keeps a part of what was being written, forgets what was not
//! synced (each sector by itself, lengths, and the newest names), and has bits that flip.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hoplo_control::disk::log::files::{Files, LogFile};

use crate::rng::Rng;

/// What reaches a disk whole or not at all.
const SECTOR_BYTES: usize = 512;

#[derive(Clone, Debug)]
pub struct MemoryFiles {
    state: Arc<Mutex<State>>,
    /// Files are made longer than what is in them.
    reserves: bool,
}

#[derive(Debug, Default)]
struct State {
    /// What processes see.
    now: Tree,
    /// What was on disk before `ops`.
    base: Tree,
    ops: Vec<Op>,
    files: u64,
    marks: u64,
}

#[derive(Clone, Debug, Default)]
struct Tree {
    names: BTreeMap<String, u64>,
    contents: BTreeMap<u64, Content>,
}

#[derive(Clone, Debug, Default)]
struct Content {
    bytes: Vec<u8>,
    /// At least as many; zeros follow.
    len: usize,
}

#[derive(Clone, Debug)]
enum Op {
    /// A name for a file, or for a folder.
    Create {
        name: String,
        file: u64,
    },
    Rename {
        from: String,
        to: String,
    },
    Remove {
        name: String,
    },
    Write {
        file: u64,
        at: usize,
        bytes: Vec<u8>,
    },
    Length {
        file: u64,
        bytes: usize,
    },
    Synced {
        file: u64,
    },
    NamesSynced,
}

#[derive(Debug)]
struct MemoryFile {
    files: MemoryFiles,
    file: u64,
}

impl Op {
    fn names(&self) -> bool {
        match self {
            Self::Create { .. } | Self::Rename { .. } | Self::Remove { .. } => true,
            Self::Write { .. } | Self::Length { .. } | Self::Synced { .. } | Self::NamesSynced => {
                false
            }
        }
    }
}

impl Tree {
    fn does(&mut self, op: &Op) {
        match op {
            Op::Create { name, file } => {
                self.names.insert(name.clone(), *file);
                self.contents.entry(*file).or_default();
            }
            Op::Rename { from, to } => {
                let file = self.names.remove(from).expect("it was there");
                self.names.insert(to.clone(), file);
            }
            Op::Remove { name } => {
                self.names.remove(name);
            }
            Op::Write { file, at, bytes } => {
                let content = self.contents.entry(*file).or_default();
                let end = at + bytes.len();
                content.bytes.resize(content.bytes.len().max(end), 0);
                content.bytes[*at..end].copy_from_slice(bytes);
                content.len = content.len.max(end);
            }
            Op::Length { file, bytes } => {
                let content = self.contents.entry(*file).or_default();
                content.bytes.truncate(*bytes);
                content.len = *bytes;
            }
            Op::Synced { .. } | Op::NamesSynced => {}
        }
    }

    /// What has no name is gone once nobody has it open.
    fn forget_nameless(&mut self) {
        let named: BTreeSet<u64> = self.names.values().copied().collect();
        self.contents.retain(|file, _| named.contains(file));
    }
}

impl State {
    fn does(&mut self, op: Op) {
        self.now.does(&op);
        self.ops.push(op);
    }

    fn file(&self, name: &str) -> io::Result<u64> {
        self.now.names.get(name).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn content(&self, file: u64) -> &Content {
        self.now.contents.get(&file).expect("a file has a content")
    }
}

impl MemoryFiles {
    pub fn new(reserves: bool) -> Self {
        Self { state: Arc::default(), reserves }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// So much was done until now.
    pub fn done(&self) -> usize {
        self.state().ops.len()
    }

    /// All of it is on disk.
    pub fn settle(&self) {
        let mut state = self.state();
        for op in std::mem::take(&mut state.ops) {
            state.base.does(&op);
        }
        state.base.forget_nameless();
    }

    /// The process dies while it does what came after `sure`; `power`: so does the machine. Whether something was kept in part.
    pub fn crash(&self, rng: &mut Rng, power: bool, sure: usize) -> bool {
        let mut state = self.state();
        let mut ops = std::mem::take(&mut state.ops);
        let under_way = ops.split_off(sure.min(ops.len()));
        let upto = rng.below(under_way.len() as u64 + 1) as usize;
        let mut torn = upto > 0 && upto < under_way.len();
        ops.extend(under_way[..upto].iter().cloned());
        if let Some(Op::Write { file, at, bytes }) = under_way.get(upto) {
            let bytes = bytes[..rng.below(bytes.len() as u64 + 1) as usize].to_vec();
            torn |= !bytes.is_empty();
            ops.push(Op::Write { file: *file, at: *at, bytes });
        }
        let mut tree = state.base.clone();
        if !power {
            ops.iter().for_each(|op| tree.does(op));
            tree.forget_nameless();
            (state.now, state.ops) = (tree, ops);
            return torn;
        }
        let names_synced = ops.iter().rposition(|op| matches!(op, Op::NamesSynced));
        let mut synced: BTreeMap<u64, usize> = BTreeMap::new();
        for (at, op) in ops.iter().enumerate() {
            if let Op::Synced { file } = op {
                synced.insert(*file, at);
            }
        }
        // Names reach the disk in order.
        let loose = ops.iter().skip(names_synced.unwrap_or(0)).filter(|op| op.names()).count();
        let mut names_kept = rng.below(loose as u64 + 1);
        for (at, op) in ops.iter().enumerate() {
            let is_synced = |file: &u64| synced.get(file).is_some_and(|synced| at < *synced);
            match op {
                Op::Create { .. } | Op::Rename { .. } | Op::Remove { .. } => {
                    let sure = names_synced.is_some_and(|synced| at < synced);
                    if sure || names_kept > 0 {
                        names_kept -= u64::from(!sure);
                        tree.does(op);
                    }
                }
                Op::Write { file, at, bytes } if !is_synced(file) => {
                    torn |= tear(rng, &mut tree, *file, *at, bytes);
                }
                Op::Length { file, .. } if !is_synced(file) && rng.one_in(2) => {}
                Op::Write { .. } | Op::Length { .. } | Op::Synced { .. } | Op::NamesSynced => {
                    tree.does(op);
                }
            }
        }
        tree.forget_nameless();
        (state.now, state.base) = (tree.clone(), tree);
        torn
    }

    /// Something happens to one of the files whose names begin like that: a bit flips, the newest file is gone, or the end of one (`cuts`).
    pub fn rots(&self, rng: &mut Rng, prefix: &str, cuts: bool) -> Option<String> {
        let mut state = self.state();
        let ours = |name: &&String| name.starts_with(prefix) && !name.contains('/');
        let names: Vec<String> = state.now.names.keys().filter(ours).cloned().collect();
        let name = names.get(rng.below(names.len().max(1) as u64) as usize)?.clone();
        let file = state.now.names[&name];
        let len = state.content(file).bytes.len() as u64;
        if len == 0 {
            return None;
        }
        // A header is short, and much depends on it.
        let within = if rng.one_in(2) { len.min(64) } else { len };
        let what = match rng.below(4) {
            0 => {
                let newest = names.last().expect("there is one").clone();
                let what = format!("{newest} is gone");
                state.does(Op::Remove { name: newest });
                what
            }
            1 if cuts => {
                let bytes = rng.below(len) as usize;
                state.does(Op::Length { file, bytes });
                format!("{name} ends at {bytes} of {len}")
            }
            _ => {
                let at = rng.below(within) as usize;
                let bytes = vec![state.content(file).bytes[at] ^ (1 << rng.below(8))];
                state.does(Op::Write { file, at, bytes });
                format!("a bit flips in {name} at {at}")
            }
        };
        // It is not undone.
        state.base = state.now.clone();
        state.ops.clear();
        Some(what)
    }
}

/// Some sectors of what was written are on disk. Whether not all, and not none.
fn tear(rng: &mut Rng, tree: &mut Tree, file: u64, at: usize, bytes: &[u8]) -> bool {
    let (mut kept, mut lost, mut start) = (false, false, 0);
    while start < bytes.len() {
        let end = ((at + start) / SECTOR_BYTES + 1) * SECTOR_BYTES - at;
        let end = end.min(bytes.len());
        if rng.one_in(2) {
            kept = true;
            tree.does(&Op::Write { file, at: at + start, bytes: bytes[start..end].to_vec() });
        } else {
            lost = true;
        }
        start = end;
    }
    kept && lost
}

impl Files for MemoryFiles {
    fn names(&self) -> io::Result<Vec<String>> {
        Ok(self.state().now.names.keys().filter(|name| !name.contains('/')).cloned().collect())
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn LogFile>> {
        let file = self.state().file(name)?;
        Ok(Arc::new(MemoryFile { files: self.clone(), file }))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn LogFile>> {
        let mut state = self.state();
        state.files += 1;
        let file = state.files;
        state.does(Op::Create { name: name.to_string(), file });
        Ok(Arc::new(MemoryFile { files: self.clone(), file }))
    }

    fn make_folder(&self, name: &str) -> io::Result<()> {
        let mut state = self.state();
        if state.file(name).is_ok() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        state.files += 1;
        let file = state.files;
        state.does(Op::Create { name: name.to_string(), file });
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.state();
        state.file(from)?;
        state.does(Op::Rename { from: from.to_string(), to: to.to_string() });
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.state();
        state.file(name)?;
        state.does(Op::Remove { name: name.to_string() });
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.state().does(Op::NamesSynced);
        Ok(())
    }

    fn mark(&self) -> u32 {
        let mut state = self.state();
        state.marks += 1;
        let spread = Rng::new(state.marks).next().to_le_bytes();
        u32::from_le_bytes([spread[0], spread[1], spread[2], spread[3]].map(|byte| byte.max(1)))
    }

    fn has_threads(&self) -> bool {
        false
    }
}

impl LogFile for MemoryFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.files.state().content(self.file).len as u64)
    }

    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<usize> {
        let state = self.files.state();
        let content = state.content(self.file);
        let got = content.len.saturating_sub(at as usize).min(into.len());
        let from = content.bytes.get(at as usize..).unwrap_or(&[]);
        let held = from.len().min(got);
        into[..held].copy_from_slice(&from[..held]);
        into[held..got].fill(0);
        Ok(got)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        let (file, at, bytes) = (self.file, at as usize, bytes.to_vec());
        self.files.state().does(Op::Write { file, at, bytes });
        Ok(())
    }

    fn reserve(&self, _from: u64, upto: u64) -> io::Result<bool> {
        if self.files.reserves {
            self.set_len(upto)?;
        }
        Ok(self.files.reserves)
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.files.state().does(Op::Length { file: self.file, bytes: bytes as usize });
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.files.state().does(Op::Synced { file: self.file });
        Ok(())
    }
}
