//! docs/protocol.md describes for people what each step of the checkpoint protocol comes before.

use skt_checkpoint::checkpoint::hook::StepName;

#[test]
fn the_page_names_all_steps_in_their_order() {
    let page = include_str!("../../docs/protocol.md");
    let table = page.split("| name | keys | before |").nth(1).expect("the table of steps");
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let names: Vec<&str> = rows.filter_map(|row| row.split('`').nth(1)).collect();
    assert_eq!(names, StepName::ALL.map(StepName::name));
}
