//! Which GPUs code in this worker sees: `CUDA_VISIBLE_DEVICES`, set before the code runs.

use hoplo_base::resources::GPU;
use pyo3::prelude::*;

use crate::current;
use crate::python::Import;
use crate::session::Session;

const VARIABLE: &str = "CUDA_VISIBLE_DEVICES";

pub(crate) struct Gpus {
    /// What the node's own environment names its GPUs, by id; beyond it an id names itself.
    names: Vec<String>,
    granted: Vec<u32>,
}

impl Gpus {
    /// On a node with GPUs a worker sees none of them until some are granted.
    pub(crate) fn of_node(py: Python<'_>, session: &Session) -> PyResult<Gpus> {
        let names = std::env::var(VARIABLE).unwrap_or_default();
        let names = names.split(',').map(str::trim).filter(|name| !name.is_empty());
        let gpus = Gpus { names: names.map(str::to_string).collect(), granted: Vec::new() };
        if session.client.welcome().resources.parts(GPU) > 0 {
            gpus.show(py)?;
        }
        Ok(gpus)
    }

    pub(crate) fn grant(&mut self, py: Python<'_>, gpus: Vec<u32>) -> PyResult<()> {
        if gpus == self.granted {
            return Ok(());
        }
        current::set_gpus(&gpus);
        self.granted = gpus;
        self.show(py)
    }

    fn show(&self, py: Python<'_>) -> PyResult<()> {
        static ENVIRON: Import = Import::new("os", "environ");
        let name = |id: &u32| match self.names.get(*id as usize) {
            Some(name) => name.clone(),
            None => id.to_string(),
        };
        let visible: Vec<_> = self.granted.iter().map(name).collect();
        ENVIRON.get(py)?.set_item(VARIABLE, visible.join(","))
    }
}
