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
    each_by(items, work, |body| thread::Builder::new().spawn(body).map(drop))
}

type Body = Box<dyn FnOnce() + Send>;

/// Works as [`each`] does, with threads that `spawn` starts.
fn each_by<T, W>(
    items: Vec<T>,
    work: W,
    mut spawn: impl FnMut(Body) -> io::Result<()>,
) -> io::Result<()>
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
        match spawn(Box::new(body)) {
            Err(why) if started == 0 => return Err(why),
            Err(_) => break,
            Ok(()) => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// What is worked on where the system gives `most` threads, and the threads that are asked for.
    fn worked(items: Vec<u32>, most: usize) -> io::Result<(Vec<u32>, usize)> {
        let (sender, receiver) = mpsc::channel();
        let mut bodies: Vec<Body> = Vec::new();
        let done = each_by(
            items,
            move |item| sender.send(item).unwrap(),
            |body| {
                bodies.push(body);
                let is_given = bodies.len() <= most;
                is_given.then_some(()).ok_or_else(|| io::ErrorKind::WouldBlock.into())
            },
        );
        let asked = bodies.len();
        bodies.truncate(most);
        bodies.into_iter().for_each(|body| body());
        done.map(|()| (receiver.iter().collect(), asked))
    }

    #[test]
    fn each_item_is_worked_on_if_there_is_any_thread() {
        let few = || vec![1, 2, 3];
        assert_eq!(worked(few(), 1).unwrap(), (few(), 2));
        assert_eq!(worked(few(), 3).unwrap(), (few(), 3));
        assert_eq!(worked(few(), 0).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        let many: Vec<u32> = (0..10_000).collect();
        assert_eq!(worked(many.clone(), 10_000).unwrap(), (many, MAX_THREADS));
    }
}
