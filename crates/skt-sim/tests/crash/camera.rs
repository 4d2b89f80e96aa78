//! Pictures of the memory of all nodes, and of the checker's book, at an instant of a start.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use skt_checkpoint::checkpoint::header::SegmentId;
use skt_sim::fibers::{Conductor, ProgramPoint};

use super::cluster::{Book, Cluster, Node, fingerprint};

/// The segments of a node, as a death of its processes would leave them.
pub struct Image {
    pub segments: BTreeMap<SegmentId, Vec<u64>>,
    sizes: BTreeMap<SegmentId, usize>,
    pub fingerprint: u64,
}

/// Everything that outlives a start: the memory of the nodes, in the order of their processes, and
/// the checker's book. Cheap to copy: pictures share what is equal.
#[derive(Clone)]
pub struct Picture {
    pub images: Vec<Arc<Image>>,
    pub book: Arc<Book>,
}

impl Picture {
    /// Whether nothing changed from one picture to the other.
    pub fn is(&self, other: &Self) -> bool {
        let mut images = self.images.iter().zip(&other.images);
        Arc::ptr_eq(&self.book, &other.book) && images.all(|(one, two)| Arc::ptr_eq(one, two))
    }

    /// The cluster after a start from `before` that ended at this instant.
    pub fn cluster(&self, before: &Cluster) -> Cluster {
        let mut cluster = before.clone();
        for (image, &node) in self.images.iter().zip(&before.placement) {
            cluster.nodes[node] = image.node();
        }
        cluster.book = (*self.book).clone();
        cluster
    }
}

impl Image {
    fn node(&self) -> Node {
        let mut node = Node::default();
        node.segments.clone_from(&self.segments);
        node.sizes.clone_from(&self.sizes);
        node
    }

    fn now(node: &Node) -> impl Iterator<Item = (SegmentId, &[u64])> {
        let resting = node.segments.iter().map(|(&id, words)| (id, &words[..]));
        let lasting = node.places.iter().filter(|(id, _)| !node.doomed.contains(id));
        let in_use = lasting.map(|(&id, &at)| {
            let len = node.sizes[&id].div_ceil(8);
            // SAFETY: this many words exist while the segment is in use. All ranks are fibers of
            // this thread and do not run while it reads.
            (id, unsafe { std::slice::from_raw_parts(at as *const u64, len) })
        });
        resting.chain(in_use)
    }

    fn is_of(&self, node: &Node) -> bool {
        let mut now = Self::now(node);
        now.all(|(id, words)| self.segments.get(&id).is_some_and(|is| is == words))
            && Self::now(node).count() == self.segments.len()
    }

    fn take(node: &Node) -> Self {
        let segments: BTreeMap<_, _> =
            Self::now(node).map(|(id, words)| (id, words.to_vec())).collect();
        let fingerprint = fingerprint(&segments);
        Self { segments, sizes: node.sizes.clone(), fingerprint }
    }
}

pub struct Camera {
    /// The node of each process; one process per node.
    nodes: Vec<Arc<Mutex<Node>>>,
    book: Arc<Mutex<Book>>,
    last: Option<Picture>,
}

impl Camera {
    pub fn new(nodes: &[Arc<Mutex<Node>>], placement: &[usize], book: &Arc<Mutex<Book>>) -> Self {
        let nodes = placement.iter().map(|&node| nodes[node].clone()).collect();
        Self { nodes, book: book.clone(), last: None }
    }

    pub fn take(&mut self) -> Picture {
        let mut images = Vec::with_capacity(self.nodes.len());
        for (process, node) in self.nodes.iter().enumerate() {
            let node = node.lock().unwrap();
            let last = self.last.as_ref().map(|last| &last.images[process]);
            images.push(match last {
                Some(image) if image.is_of(&node) => image.clone(),
                _ => Arc::new(Image::take(&node)),
            });
        }
        let book = self.book.lock().unwrap();
        let book = match &self.last {
            Some(last) if *last.book == *book => last.book.clone(),
            _ => Arc::new(book.clone()),
        };
        self.last.insert(Picture { images, book }).clone()
    }
}

/// Observes a start, and may choose which rank continues: see [`Conductor`].
pub trait Witness: Send + 'static {
    fn at_step(&mut self, points: &[ProgramPoint], camera: &mut Camera);
    fn choose(
        &mut self,
        points: &[ProgramPoint],
        able: u64,
        current: usize,
        camera: &mut Camera,
    ) -> Option<usize>;
    fn sees(&mut self, rank: usize, is_here: bool) -> bool;
    fn at_end(&mut self, camera: &mut Camera);
}

impl Witness for () {
    fn at_step(&mut self, _: &[ProgramPoint], _: &mut Camera) {}
    fn choose(&mut self, _: &[ProgramPoint], _: u64, _: usize, _: &mut Camera) -> Option<usize> {
        None
    }
    fn sees(&mut self, _: usize, is_here: bool) -> bool {
        is_here
    }
    fn at_end(&mut self, _: &mut Camera) {}
}

pub struct Staged<W> {
    pub witness: W,
    pub camera: Camera,
}

impl<W: Witness> Conductor for Staged<W> {
    fn at_step(&mut self, _: u64, points: &[ProgramPoint]) {
        self.witness.at_step(points, &mut self.camera);
    }

    fn choose(&mut self, points: &[ProgramPoint], able: u64, current: usize) -> Option<usize> {
        self.witness.choose(points, able, current, &mut self.camera)
    }

    fn sees(&mut self, rank: usize, is_here: bool) -> bool {
        self.witness.sees(rank, is_here)
    }
}
