//! Lists whose arrays are parts of objects of other nodes, and come to their places at once.

use hoplo_base::NodeNumber;
use hoplo_client::{Content, GivesUp};
use hoplo_wire::Part;
use hoplo_wire::layout::{Layout, PartKind};
use pyo3::prelude::*;

use crate::reduces::Folded;
use crate::refs::ObjectRef;
use crate::values::Encoded;
use crate::{python, session, values};

/// Where the arrays lie in the bytes of an object that is in the store of this node, in order: from which byte on, and how many. None, if there is something else
/// in it than arrays, or it is not here.
#[pyfunction]
pub(crate) fn places_of(
    py: Python<'_>,
    r#ref: PyRef<'_, ObjectRef>,
) -> PyResult<Option<Vec<(u64, u64)>>> {
    let session = session::current(py)?;
    let object = r#ref.id_in(&session)?;
    let Some(Content::Stored(pinned)) = session.client.read(object) else { return Ok(None) };
    let Ok(layout) = Layout::of(&pinned) else { return Ok(None) };
    let arrays = layout.parts().iter().enumerate().filter_map(|(at, part)| {
        let start = layout.start(at);
        let is_array = matches!(part.kind, PartKind::Numbers(_));
        is_array.then_some((start as u64, (part.end - start) as u64))
    });
    Ok(Some(arrays.collect()))
}

/// The number of the node of this process.
#[pyfunction]
pub(crate) fn this_node(py: Python<'_>) -> PyResult<u32> {
    Ok(session::current(py)?.client.welcome().node.number())
}

/// The value of `items`, as a task returns it, with the bytes of some arrays fetched from other nodes: `parts` has of each of these where it lies in this process, and
/// how long it is; the object that it is a part of, a node that has all of that, and the place in its bytes. What these arrays have in `items` is not read. None if they cannot be had so.
#[pyfunction]
pub(crate) fn assemble<'py>(
    py: Python<'py>,
    items: &Bound<'py, PyAny>,
    parts: Vec<(usize, usize, PyRef<'py, ObjectRef>, u32, u64)>,
) -> PyResult<Option<Bound<'py, Folded>>> {
    let session = session::current(py)?;
    let mut contains = values::Contained::default();
    let encoded = values::encode(items, 0, &mut Vec::new(), &mut contains)?;
    let (Encoded::Large(mut large), 0) = (encoded, contains.len()) else { return Ok(None) };
    let mut wanted = Vec::with_capacity(parts.len());
    for (address, len, object, node, from) in &parts {
        let at = large.leave_out(*address as *const u8, *len);
        let node = NodeNumber::of_number(*node);
        // Pickle copies some arrays into its own bytes.
        let (Some(at), Some(node)) = (at, node) else { return Ok(None) };
        let object = object.id_in(&session)?;
        wanted.push(Part { object, node, from: *from, len: *len as u64, at: at as u64 });
    }
    drop(parts);
    wanted.sort_by_key(|part| part.at);
    let bytes = large.len() as u64;
    let made = python::interruptible(py, |gives_up: GivesUp<'_>| {
        session.client.assemble(bytes, wanted.clone(), gives_up)
    })?;
    let Ok(made) = made else { return Ok(None) };
    // SAFETY: all of it is this process's, and nobody else knows of it.
    unsafe { large.write(py, made.as_mut_ptr()) };
    Folded::new(py, made).map(Some)
}
