//! How a daemon is to be: what the command line says, and what the machine gives where it is silent.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hoplo_base::limits::{
    CERTIFICATE_RENEWED, OBJECT_STORE_BYTES_LEAST, OBJECT_STORE_BYTES_MIN, OBJECT_STORE_SHARE,
};
use hoplo_base::resources::{CPU, GPU, MEMORY};
use hoplo_base::{ResourceError, ResourceSet, Size};
use hoplo_core::objects::PAGE;
use hoplo_folders::Places;

use crate::error::StartError;
use crate::joining::{Join, Listen};
use crate::machine;

#[derive(Clone, Debug)]
pub struct Options {
    /// Where session directories are made.
    pub base: Places,
    /// Exactly this one instead of a new one there.
    pub session_dir: Option<PathBuf>,
    /// `address="auto"` finds it.
    pub head: bool,
    /// Where a head lets other nodes join; absent: nowhere.
    pub listen: Option<Listen>,
    /// It is of the driver that starts it, and ends with it: no other program is to use it.
    pub of_driver: bool,
    /// The cluster that it joins.
    pub join: Option<Join>,
    /// It renews its certificate so often.
    pub renews: Duration,
    /// What is damaged of a head's tables is set aside, instead of not beginning.
    pub accept_loss: bool,
    /// A head without a store begins with what lies in this file.
    pub from_backup: Option<PathBuf>,
    pub num_cpus: Option<f64>,
    pub num_gpus: Option<f64>,
    /// Bytes for tasks and actors.
    pub memory: Option<u64>,
    /// Of any other name.
    pub resources: BTreeMap<String, f64>,
    /// What describes the node, for those who look at it.
    pub labels: BTreeMap<String, String>,
    /// Bytes for objects.
    pub object_store_memory: Option<u64>,
    /// The zygote's program and arguments; the number of its descriptor is appended.
    pub zygote: Vec<String>,
    /// Of the Python that runs workers, such as 3.12, if it is known.
    pub python: Option<String>,
    /// The soft limit on open files that workers get, if not the daemon's own.
    pub descriptors_of_workers: Option<u64>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            base: Places::of_environment(),
            session_dir: None,
            head: false,
            listen: None,
            of_driver: false,
            join: None,
            renews: CERTIFICATE_RENEWED,
            accept_loss: false,
            from_backup: None,
            num_cpus: None,
            num_gpus: None,
            memory: None,
            resources: BTreeMap::new(),
            labels: BTreeMap::new(),
            object_store_memory: None,
            zygote: zygote_command(Path::new("python3")),
            python: None,
            descriptors_of_workers: None,
        }
    }
}

impl Options {
    pub(crate) fn node_resources(&self) -> Result<ResourceSet, ResourceError> {
        let memory = machine::memory().total.saturating_sub(self.object_store_bytes());
        let cpus = self.num_cpus.unwrap_or_else(|| machine::cpus() as f64);
        let gpus = self.num_gpus.unwrap_or_else(|| machine::gpus() as f64);
        let memory = self.memory.unwrap_or(memory) as f64;
        let named = self.resources.iter().map(|(name, amount)| (name.as_str(), *amount));
        ResourceSet::from_units(named.chain([(CPU, cpus), (GPU, gpus), (MEMORY, memory)]))
    }

    /// Of a head over control nodes: their cluster's file.
    pub(crate) fn over(&self) -> Option<&Path> {
        self.listen.as_ref().filter(|_| self.head).and_then(|listen| listen.over.as_deref())
    }

    /// No more than this machine has, and enough to be of use.
    pub(crate) fn check_object_store(&self, machine: u64) -> Result<(), StartError> {
        let Some(wanted) = self.object_store_memory else { return Ok(()) };
        if (OBJECT_STORE_BYTES_LEAST..=machine.max(OBJECT_STORE_BYTES_LEAST)).contains(&wanted) {
            return Ok(());
        }
        let (least, machine) = (Size(OBJECT_STORE_BYTES_LEAST), Size(machine));
        Err(StartError::StoreBytes { wanted: Size(wanted), least, machine })
    }

    /// A whole number of pages.
    pub(crate) fn object_store_bytes(&self) -> u64 {
        let share = (machine::memory().total as f64 * OBJECT_STORE_SHARE) as u64;
        let bytes = self.object_store_memory.unwrap_or(share.max(OBJECT_STORE_BYTES_MIN));
        bytes.max(PAGE) / PAGE * PAGE
    }
}

pub fn zygote_command(python: &Path) -> Vec<String> {
    // -P: a random.py where the user happens to be is not the standard library's. Not -m, which
    // imports what runs modules first; and imports are faster with the collector off.
    let program = "import gc; gc.disable(); from hoplo._zygote import main; main()()";
    let arguments = ["-P", "-c", program].map(str::to_string);
    std::iter::once(python.display().to_string()).chain(arguments).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_counts_and_the_rest_is_the_machines() {
        let options = Options {
            num_cpus: Some(3.0),
            num_gpus: Some(2.0),
            memory: Some(1 << 30),
            resources: BTreeMap::from([("tpu".to_string(), 0.5)]),
            object_store_memory: Some(5000),
            ..Options::default()
        };
        let resources = options.node_resources().unwrap();
        assert_eq!(resources.to_string(), "CPU 3, GPU 2, memory 1.0 GiB, tpu 0.5");
        assert_eq!(options.object_store_bytes(), 4096);
        let defaults = Options::default();
        assert!(defaults.object_store_bytes().is_multiple_of(4096));
        assert!(defaults.node_resources().unwrap().units("CPU") >= 1.0);
        assert!(defaults.check_object_store(1 << 20).is_ok(), "nobody asked for it");
        let asked = |bytes| Options { object_store_memory: Some(bytes), ..Options::default() };
        for bytes in [1 << 20, 64 << 20, 4 << 30] {
            assert!(asked(bytes).check_object_store(4 << 30).is_ok(), "{bytes}");
        }
        for (bytes, wanted) in
            [(10, "10 B"), ((1 << 20) - 1, "1024.0 KiB"), (900 << 30, "900.0 GiB")]
        {
            let error = asked(bytes).check_object_store(4 << 30).unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("an object store of {wanted} cannot be")),
                "{error}"
            );
            assert!(error.contains("from 1.0 MiB to 4.0 GiB") && !error.contains('\n'), "{error}");
        }
        let bad = Options { num_cpus: Some(-1.0), ..Options::default() };
        assert!(bad.node_resources().unwrap_err().to_string().contains("CPU"));
    }
}
