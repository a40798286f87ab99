//! Which shard a key belongs to. Every program of a cluster must agree, so this never changes.

use hoplo_wire::control::{Key, ShardId, Table};

/// FNV-1a (64 bit) over the table's number and the key's bytes, stirred once so that the low bits
/// depend on all others, modulo the number of shards.
pub fn shard_of(key: &Key, shards: u16) -> ShardId {
    assert!(shards > 0, "a cluster has at least one shard");
    let hash = stir(fnv(&key.bytes, fnv(&[number(key.table)], FNV_START)));
    ShardId((hash % u64::from(shards)) as u16)
}

/// The tables' numbers in the hash; not their places in the enum.
fn number(table: Table) -> u8 {
    match table {
        Table::Node => 0,
        Table::Job => 1,
        Table::Function => 2,
        Table::Object => 3,
        Table::Task => 4,
        Table::Actor => 5,
        Table::PlacementGroup => 6,
        Table::Kv => 7,
        Table::Event => 8,
        Table::Token => 9,
        Table::Head => 10,
        Table::History => 11,
    }
}

const FNV_START: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;

fn fnv(bytes: &[u8], start: u64) -> u64 {
    bytes.iter().fold(start, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(FNV_PRIME))
}

/// The finalizer of splitmix64.
fn stir(mut hash: u64) -> u64 {
    hash = (hash ^ hash >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ hash >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ hash >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shard(table: Table, bytes: &[u8], shards: u16) -> u16 {
        shard_of(&Key { table, bytes: bytes.to_vec() }, shards).0
    }

    #[test]
    fn keys_stay_where_they_were_in_older_versions() {
        let vectors: [(Table, &[u8], u16, u16); 5] = [
            (Table::Node, b"", 1000, 608),
            (Table::Kv, b"", 1000, 153),
            (Table::Kv, b"a", 1000, 271),
            (Table::Task, b"0123456789abcdef", 1000, 396),
            (Table::Event, &[0xff; 16], 65535, 49796),
        ];
        for (table, bytes, shards, expected) in vectors {
            assert_eq!(shard(table, bytes, shards), expected, "{table:?} {bytes:?}");
        }
    }

    #[test]
    fn keys_that_count_up_spread_evenly() {
        let mut found = [0_u32; 8];
        for key in 0..8000_u64 {
            found[usize::from(shard(Table::Task, &key.to_be_bytes(), 8))] += 1;
        }
        assert!(found.iter().all(|count| (850..1150).contains(count)), "{found:?}");
    }
}
