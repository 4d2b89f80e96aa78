//! Work on many items at a time, each of which may wait for long.

use std::sync::{Arc, Mutex};
use std::{io, thread};

/// The most threads at a time: names and hosts may be ten thousands, and a user or a control group
/// may have no more than some hundred threads.
const MAX_THREADS: usize = 256;

/// Calls `work` with each item, on a thread for each, up to 256. The threads are detached. If there
/// are more items, or the system gives fewer threads, each thread takes several.
pub fn each<T, W>(items: Vec<T>, work: W) -> io::Result<()>
where
    T: Send + 'static,
    W: Fn(T) + Send + Sync + 'static,
{
    let count = items.len().min(MAX_THREADS);
    let shared = Arc::new((Mutex::new(items.into_iter()), work));
    for started in 0..count {
        let shared = Arc::clone(&shared);
        let body = move || {
            let (items, work) = &*shared;
            while let Some(item) = { items.lock().expect("no thread panics with it").next() } {
                work(item);
            }
        };
        match thread::Builder::new().spawn(body) {
            Err(why) if started == 0 => return Err(why),
            Err(_) => break,
            Ok(_) => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn each_item_is_worked_on_by_a_bounded_number_of_threads() {
        let (sender, receiver) = mpsc::channel();
        let send = move |item: u32| sender.send((item, thread::current().id())).unwrap();
        each((0..10_000).collect(), send).unwrap();
        let (mut items, threads): (Vec<u32>, BTreeSet<String>) =
            receiver.iter().map(|(item, thread)| (item, format!("{thread:?}"))).unzip();
        items.sort_unstable();
        assert!(items.into_iter().eq(0..10_000) && threads.len() <= MAX_THREADS);
    }
}
