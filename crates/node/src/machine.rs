//! What this machine has: processors, memory, GPUs; as far as a container lets us have it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Memory {
    pub(crate) total: u64,
    pub(crate) available: u64,
}

/// A filesystem that takes next to nothing more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FullDisk {
    /// Where it is mounted.
    pub(crate) mount: PathBuf,
    /// Bytes that we may still write.
    pub(crate) free: u64,
}

/// With less than this free, a disk is full.
const DISK_BYTES_MIN: u64 = 1 << 20;

/// The filesystem of a folder, or of the nearest one above it that is there, if it is full.
pub(crate) fn full_disk(folder: &Path) -> Option<FullDisk> {
    let mut mount = folder.ancestors().find(|folder| folder.exists())?;
    let room = rustix::fs::statvfs(mount).ok()?;
    let free = room.f_bavail.saturating_mul(room.f_frsize);
    if free >= DISK_BYTES_MIN && (room.f_favail > 0 || room.f_files == 0) {
        return None;
    }
    let device = |folder: &Path| fs::metadata(folder).ok().map(|it| it.dev());
    let ours = device(mount);
    while let Some(above) = mount.parent().filter(|above| device(above) == ours) {
        mount = above;
    }
    Some(FullDisk { mount: mount.to_path_buf(), free })
}

pub(crate) fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// NVIDIA devices, or those that `CUDA_VISIBLE_DEVICES` names.
pub(crate) fn gpus() -> usize {
    if let Ok(visible) = std::env::var("CUDA_VISIBLE_DEVICES") {
        return visible.split(',').filter(|id| !id.trim().is_empty() && id.trim() != "-1").count();
    }
    let Ok(devices) = fs::read_dir("/dev") else { return 0 };
    let names = devices.flatten().map(|device| device.file_name());
    let is_gpu = |name: &str| {
        let number = name.strip_prefix("nvidia");
        number.is_some_and(|n| !n.is_empty() && n.bytes().all(|byte| byte.is_ascii_digit()))
    };
    names.filter(|name| name.to_str().is_some_and(is_gpu)).count()
}

pub(crate) fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Of the machine, or of the control group that limits us to less.
pub(crate) fn memory() -> Memory {
    let info = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let mut memory = parse_meminfo(&info).unwrap_or(Memory { total: 1 << 30, available: 1 << 30 });
    if let Some((limit, used)) = cgroup_memory() {
        memory.total = memory.total.min(limit);
        memory.available = memory.available.min(limit.saturating_sub(used));
    }
    memory
}

/// Resident bytes of a process that are its own: neither files nor shared memory.
pub(crate) fn own_bytes(pid: u32) -> Option<u64> {
    parse_statm(&fs::read_to_string(format!("/proc/{pid}/statm")).ok()?)
}

/// What such bytes of several processes come to when those that they share (after a fork) are counted once.
pub(crate) fn own_bytes_together(pids: &[u32]) -> u64 {
    let bytes = |pid: &u32| -> Option<u64> {
        let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok();
        rollup.and_then(|rollup| kib_line(&rollup, "Pss_Anon:")).or_else(|| own_bytes(*pid))
    };
    pids.iter().filter_map(bytes).sum()
}

/// Our group in the unified hierarchy.
pub(crate) fn cgroup2() -> Option<PathBuf> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let folder = PathBuf::from("/sys/fs/cgroup").join(path.trim_start_matches('/'));
    folder.join("cgroup.controllers").exists().then_some(folder)
}

/// Limit, and what is in use without caches that would go at once.
fn cgroup_memory() -> Option<(u64, u64)> {
    if let Some(folder) = cgroup2() {
        let read = |file: &str| fs::read_to_string(folder.join(file)).ok();
        let limit = read("memory.max")?.trim().parse().ok()?;
        let used: u64 = read("memory.current")?.trim().parse().ok()?;
        let cache = stat_line(&read("memory.stat")?, "inactive_file ");
        return Some((limit, used.saturating_sub(cache)));
    }
    let read = |file: &str| fs::read_to_string(format!("/sys/fs/cgroup/memory/{file}")).ok();
    let limit: u64 = read("memory.limit_in_bytes")?.trim().parse().ok()?;
    let used: u64 = read("memory.usage_in_bytes")?.trim().parse().ok()?;
    let cache = stat_line(&read("memory.stat")?, "total_inactive_file ");
    Some((limit, used.saturating_sub(cache)))
}

fn stat_line(stat: &str, name: &str) -> u64 {
    let value = stat.lines().find_map(|line| line.strip_prefix(name));
    value.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
}

fn parse_meminfo(info: &str) -> Option<Memory> {
    let bytes = |name: &str| kib_line(info, name);
    Some(Memory { total: bytes("MemTotal:")?, available: bytes("MemAvailable:")? })
}

/// The bytes of a line such as `MemTotal:  24683000 kB`.
fn kib_line(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

fn parse_statm(statm: &str) -> Option<u64> {
    let mut pages = statm.split_whitespace().skip(1).map(str::parse::<u64>);
    let resident = pages.next()?.ok()?;
    let shared = pages.next()?.ok()?;
    Some(resident.saturating_sub(shared) * rustix::param::page_size() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_files_are_read_and_rubbish_is_nothing() {
        let info = "MemTotal:  24683000 kB\nMemFree: 1 kB\nMemAvailable:   24000000 kB\n";
        let memory = parse_meminfo(info).unwrap();
        assert_eq!((memory.total, memory.available), (24_683_000 << 10, 24_000_000 << 10));
        assert_eq!(parse_meminfo("MemTotal: x kB"), None);
        let page = rustix::param::page_size() as u64;
        assert_eq!(parse_statm("100 30 10 1 0 5 0"), Some(20 * page));
        assert_eq!(parse_statm("100 30"), None);
        assert!(own_bytes(std::process::id()).is_some_and(|bytes| bytes > 0));
        assert!(own_bytes_together(&[std::process::id()]) > 0);
        assert!(super::memory().total > 0 && cpus() > 0);
    }
}
