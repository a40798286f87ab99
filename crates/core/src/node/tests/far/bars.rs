//! Progress bars of workers of other nodes.

use hoplo_wire::node::BAR_MARK;

use super::*;

impl Nodes {
    /// Node 1 tells a driver of node 0 what a worker printed.
    fn prints(&mut self, driver: ProcessId, line: &str) {
        let (pid, title, stderr, lines) = (42, "f".to_string(), true, vec![line.to_string()]);
        let message = Box::new(ToClient::Output { pid, title, address: None, stderr, lines });
        self.shells[1].hears(Event::Printed { driver, message });
        self.pump();
    }

    fn printed(&mut self, driver: ProcessId) -> Vec<String> {
        let shell = &mut self.shells[0];
        let told = std::iter::from_fn(|| {
            shell.told(driver, |message| match message {
                ToClient::Output { lines, .. } => Some(lines.clone()),
                _ => None,
            })
        });
        told.flatten().collect()
    }
}

#[test]
fn the_bars_of_the_workers_of_a_dead_node_stayed() {
    let (mut nodes, driver, _, worker) = Nodes::leased();
    let plain = nodes.shells[0].driver();
    let left = nodes.shells[0].driver();
    let bar = format!("1/3{BAR_MARK}{{\"id\": \"{:016x}.0\", \"ended\": false}}", worker.0);
    nodes.prints(driver, &bar);
    nodes.prints(left, &bar);
    nodes.prints(plain, "a line");
    assert_eq!(nodes.printed(driver), [bar]);
    assert_eq!(nodes.printed(plain), ["a line"]);
    nodes.shells[0].hears(Event::Closed { process: left });
    nodes.pump();

    nodes.dies(1);
    let node = format!("{:06x}", number(1).number());
    assert!(format!("{:016x}", worker.0).starts_with(&node));
    assert_eq!(nodes.printed(driver), [format!("{BAR_MARK}{{\"dead\": \"{node}\"}}")]);
    assert_eq!(nodes.printed(plain), [""; 0], "it has no bars of that node");
    assert_eq!(nodes.printed(left).len(), 1, "what it was told while it lived");
}
