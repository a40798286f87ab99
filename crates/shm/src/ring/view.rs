//! Where a ring lies: a mapped memfd, or loom's model of one. No protocol here.

#[cfg(not(loom))]
pub(crate) use mapped::RingView;
#[cfg(loom)]
pub(crate) use model::RingView;

#[cfg(not(loom))]
mod mapped {
    use core::ptr::NonNull;
    use std::sync::Arc;

    use super::super::HEADER_BYTES;
    use crate::mapping::Mapping;
    use crate::sync::{AtomicU32, AtomicU64};

    /// A ring inside a mapping, which it keeps alive.
    #[derive(Clone, Debug)]
    pub(crate) struct RingView {
        head: NonNull<AtomicU64>,
        tail: NonNull<AtomicU64>,
        data: NonNull<u8>,
        capacity: usize,
        _mapping: Arc<Mapping>,
    }

    // SAFETY: the pointers lead into the mapping, which is Send and Sync, and kept alive. Who may
    // touch which bytes when is RING-2, whatever the thread.
    unsafe impl Send for RingView {}

    impl RingView {
        /// A ring whose parts lie at these offsets of `mapping`; `capacity` is a power of two.
        pub(crate) fn new(
            mapping: &Arc<Mapping>,
            head: usize,
            tail: usize,
            data: usize,
            capacity: usize,
        ) -> RingView {
            assert!(capacity.is_power_of_two() && capacity >= HEADER_BYTES);
            assert!(data.is_multiple_of(HEADER_BYTES) && data + capacity <= mapping.bytes());
            RingView {
                head: mapping.at(head),
                tail: mapping.at(tail),
                data: mapping.at(data),
                capacity,
                _mapping: Arc::clone(mapping),
            }
        }

        pub(crate) fn capacity(&self) -> usize {
            self.capacity
        }

        pub(crate) fn head(&self) -> &AtomicU64 {
            // SAFETY: checked and aligned in new(), alive with the mapping.
            unsafe { self.head.as_ref() }
        }

        pub(crate) fn tail(&self) -> &AtomicU64 {
            // SAFETY: as for head().
            unsafe { self.tail.as_ref() }
        }

        /// The state word of the frame at `offset`.
        #[inline]
        pub(crate) fn state(&self, offset: usize) -> &AtomicU32 {
            let header = self.header(offset);
            // SAFETY: header() has checked the bounds; 16-byte aligned.
            unsafe { AtomicU32::from_ptr(header.as_ptr().cast()) }
        }

        /// Reads `len` and `tag`, each once.
        ///
        /// # Safety
        /// The frame is published and not given back (RING-2).
        #[inline]
        pub(crate) unsafe fn read_header(&self, offset: usize) -> (u32, u64) {
            let header = self.header(offset).as_ptr();
            // SAFETY: in bounds and aligned by header(); volatile, since a peer that breaks RING-2
            // must not make the compiler read a length twice.
            unsafe {
                let len = header.add(4).cast::<u32>().read_volatile();
                (len, header.add(8).cast::<u64>().read_volatile())
            }
        }

        /// Writes `len` and `tag`.
        ///
        /// # Safety
        /// The bytes are the producer's, and the caller is the producer (RING-2).
        #[inline]
        pub(crate) unsafe fn write_header(&self, offset: usize, len: u32, tag: u64) {
            let header = self.header(offset).as_ptr();
            // SAFETY: in bounds and aligned by header(); ours by contract.
            unsafe {
                header.add(4).cast::<u32>().write(len);
                header.add(8).cast::<u64>().write(tag);
            }
        }

        /// Copies `parts` one after the other to `offset`.
        ///
        /// # Safety
        /// As for `write_header`.
        #[inline]
        pub(crate) unsafe fn copy_in(&self, mut offset: usize, parts: &[&[u8]]) {
            for part in parts {
                assert!(part.len() <= self.capacity - offset, "RING-2: frame beyond the ring");
                // SAFETY: in bounds by the assertion (offset <= capacity by induction), ours by
                // contract, and `part` cannot overlap bytes that we own.
                unsafe {
                    let to = self.data.as_ptr().add(offset);
                    core::ptr::copy_nonoverlapping(part.as_ptr(), to, part.len());
                }
                offset += part.len();
            }
        }

        /// The bytes of a payload.
        ///
        /// # Safety
        /// As for `read_header`, for as long as the slice lives.
        #[inline]
        pub(crate) unsafe fn bytes(&self, offset: usize, len: usize) -> &[u8] {
            assert!(offset <= self.capacity && len <= self.capacity - offset);
            // SAFETY: in bounds by the assertion; published by contract.
            unsafe { core::slice::from_raw_parts(self.data.as_ptr().add(offset), len) }
        }

        #[inline]
        fn header(&self, offset: usize) -> NonNull<u8> {
            assert!(offset < self.capacity && offset.is_multiple_of(HEADER_BYTES));
            // SAFETY: in bounds by the assertion, capacity being a multiple of HEADER_BYTES.
            unsafe { self.data.add(offset) }
        }
    }
}

#[cfg(loom)]
mod model {
    use loom::cell::UnsafeCell;
    use std::sync::Arc;

    use super::super::HEADER_BYTES;
    use crate::sync::{AtomicU32, AtomicU64};

    /// A ring in loom's memory, cut into units of one header. Each unit's cell tells loom who
    /// reads and who writes it when; the bytes themselves lie in `bytes`.
    #[derive(Clone, Debug)]
    pub(crate) struct RingView {
        shared: Arc<Shared>,
    }

    #[derive(Debug)]
    struct Shared {
        head: AtomicU64,
        tail: AtomicU64,
        states: Vec<AtomicU32>,
        cells: Vec<UnsafeCell<()>>,
        bytes: std::cell::UnsafeCell<Box<[u8]>>,
    }

    // SAFETY: `bytes` is touched only next to the cell of the unit, where loom watches for races.
    unsafe impl Sync for Shared {}
    // SAFETY: as above.
    unsafe impl Send for Shared {}

    impl RingView {
        pub(crate) fn model(capacity: usize) -> RingView {
            let units = capacity / HEADER_BYTES;
            RingView {
                shared: Arc::new(Shared {
                    head: AtomicU64::new(0),
                    tail: AtomicU64::new(0),
                    states: (0..units).map(|_| AtomicU32::new(0)).collect(),
                    cells: (0..units).map(|_| UnsafeCell::new(())).collect(),
                    bytes: std::cell::UnsafeCell::new(vec![0; capacity].into()),
                }),
            }
        }

        pub(crate) fn capacity(&self) -> usize {
            self.shared.cells.len() * HEADER_BYTES
        }

        pub(crate) fn head(&self) -> &AtomicU64 {
            &self.shared.head
        }

        pub(crate) fn tail(&self) -> &AtomicU64 {
            &self.shared.tail
        }

        pub(crate) fn state(&self, offset: usize) -> &AtomicU32 {
            &self.shared.states[offset / HEADER_BYTES]
        }

        pub(crate) unsafe fn read_header(&self, offset: usize) -> (u32, u64) {
            // SAFETY: as the caller promises; loom checks it.
            let header = unsafe { self.bytes(offset, HEADER_BYTES) };
            let len = header[4..8].try_into().expect("four bytes");
            let tag = header[8..16].try_into().expect("eight bytes");
            (u32::from_le_bytes(len), u64::from_le_bytes(tag))
        }

        pub(crate) unsafe fn write_header(&self, offset: usize, len: u32, tag: u64) {
            let parts: [&[u8]; 3] = [&[0; 4], &len.to_le_bytes(), &tag.to_le_bytes()];
            // SAFETY: as the caller promises; loom checks it.
            unsafe { self.copy_in(offset, &parts) };
        }

        pub(crate) unsafe fn copy_in(&self, mut offset: usize, parts: &[&[u8]]) {
            for part in parts {
                self.each_unit(offset, part.len(), |cell| cell.with_mut(|_| ()));
                // SAFETY: in bounds by slicing; races are found by the cells.
                let bytes = unsafe { (*self.shared.bytes.get()).as_mut_ptr() };
                assert!(offset + part.len() <= self.capacity());
                // SAFETY: as above.
                unsafe { part.as_ptr().copy_to(bytes.add(offset), part.len()) };
                offset += part.len();
            }
        }

        pub(crate) unsafe fn bytes(&self, offset: usize, len: usize) -> &[u8] {
            self.each_unit(offset, len, |cell| cell.with(|_| ()));
            // SAFETY: races are found by the cells.
            unsafe { &(&*self.shared.bytes.get())[offset..offset + len] }
        }

        fn each_unit(&self, offset: usize, len: usize, visit: impl Fn(&UnsafeCell<()>)) {
            let units = offset / HEADER_BYTES..(offset + len).div_ceil(HEADER_BYTES);
            self.shared.cells[units].iter().for_each(visit);
        }
    }
}
