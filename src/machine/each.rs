//! Work on many items at a time, each of which may wait for long.

use std::io;
use std::sync::{Arc, Mutex};
use std::thread;

/// Calls `work` with each item, on a thread for each. Nobody waits for these threads. Where the
/// system gives no further one, those that run take the remaining items.
///
/// # Errors
/// When the system gives no thread at all: `work` is not called.
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
    let count = items.len();
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

    /// What is worked on where the system gives `most` threads.
    fn worked(most: usize) -> io::Result<Vec<u32>> {
        let (sender, receiver) = mpsc::channel();
        let mut bodies: Vec<Body> = Vec::new();
        let done = each_by(
            vec![1, 2, 3],
            move |item| sender.send(item).unwrap(),
            |body| {
                bodies.push(body);
                let is_given = bodies.len() <= most;
                is_given.then_some(()).ok_or_else(|| io::ErrorKind::WouldBlock.into())
            },
        );
        bodies.truncate(most);
        bodies.into_iter().for_each(|body| body());
        done.map(|()| receiver.iter().collect())
    }

    #[test]
    fn each_item_is_worked_on_if_there_is_any_thread() {
        assert_eq!(worked(1).unwrap(), [1, 2, 3]);
        assert_eq!(worked(3).unwrap(), [1, 2, 3]);
        assert_eq!(worked(0).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }
}
