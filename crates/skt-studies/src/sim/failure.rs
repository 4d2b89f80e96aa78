use std::collections::BinaryHeap;

use super::random::Stream;
use super::trace::{Failure, Trace};
use crate::StudyError;
use skt_model::ModelError;
use skt_model::error::{at_least, positive};

#[derive(Debug, Clone, PartialEq)]
pub enum Law {
    Exponential {
        mtbf_seconds: f64,
    },
    /// Weibull, with density `k/h (x/h)^(k-1) e^(-(x/h)^k)`; k < 1 for infant mortality.
    Weibull {
        mtbf_seconds: f64,
        /// The shape k.
        shape: f64,
    },
    /// Log-normal: the logarithm of the life is normal.
    LogNormal {
        mtbf_seconds: f64,
        /// The standard deviation of the logarithm.
        sigma: f64,
    },
    Trace(Trace),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Ages {
    /// The machine has run for long: the time to the first failure of a node is the
    /// residual of a life seen at a random time.
    #[default]
    Steady,
    /// All nodes are new, as after a complete replacement.
    New,
}

impl Law {
    pub(crate) fn validate(&self) -> Result<(), ModelError> {
        match *self {
            Self::Exponential { mtbf_seconds } => {
                positive("mtbf_seconds", mtbf_seconds)?;
            }
            Self::Weibull { mtbf_seconds, shape } => {
                positive("mtbf_seconds", mtbf_seconds)?;
                positive("shape", shape)?;
                positive(
                    "the scale of the law, in seconds,",
                    Life::from_law(self).scale_seconds(),
                )?;
            }
            Self::LogNormal { mtbf_seconds, sigma } => {
                positive("mtbf_seconds", mtbf_seconds)?;
                positive("sigma", sigma)?;
                positive(
                    "the scale of the law, in seconds,",
                    Life::from_law(self).scale_seconds(),
                )?;
            }
            Self::Trace(_) => {}
        }
        Ok(())
    }

    /// A source of failures for `nodes` nodes, with random numbers from `stream`.
    pub(crate) fn source(
        &self,
        nodes: usize,
        ages: Ages,
        stream: Stream,
    ) -> Result<FailureSource, StudyError> {
        self.validate()?;
        at_least("nodes", nodes, 1, "1 or more")?;
        let kind = match self {
            Self::Exponential { mtbf_seconds } => {
                FailureProcess::Superposed { mtbf_seconds: mtbf_seconds / nodes as f64, nodes }
            }
            Self::Weibull { .. } | Self::LogNormal { .. } => {
                FailureProcess::Renewal { life: Life::from_law(self), heap: BinaryHeap::new() }
            }
            Self::Trace(trace) => {
                trace.check_nodes(nodes)?;
                FailureProcess::Replay { trace: trace.clone(), next: 0, offset_seconds: 0.0 }
            }
        };
        let mut source = FailureSource { stream, kind, next: Failure { at_seconds: 0.0, node: 0 } };
        source.start(nodes, ages);
        Ok(source)
    }
}

/// In order of time. A new node replaces a failed one at once: its life starts at the failure.
#[derive(Debug, Clone)]
pub struct FailureSource {
    stream: Stream,
    kind: FailureProcess,
    next: Failure,
}

#[derive(Debug, Clone)]
enum FailureProcess {
    /// n memoryless nodes act as one memoryless platform.
    Superposed { mtbf_seconds: f64, nodes: usize },
    /// A heap with the next failure of every node.
    Renewal { life: Life, heap: BinaryHeap<Failure> },
    /// A trace that is entered at a random time and wraps around at its end.
    Replay { trace: Trace, next: usize, offset_seconds: f64 },
}

impl FailureSource {
    pub(crate) fn peek(&self) -> Failure {
        self.next
    }

    /// Lets time pass from `now` until `duration` is over or a node fails.
    pub(crate) fn pass(&mut self, now: &mut f64, duration: f64) -> Result<(), Failure> {
        let end = *now + duration;
        if self.next.at_seconds >= end {
            *now = end;
            return Ok(());
        }
        let failure = self.pop();
        *now = failure.at_seconds;
        Err(failure)
    }

    pub(crate) fn pop(&mut self) -> Failure {
        let failure = self.next;
        self.next = match &mut self.kind {
            FailureProcess::Superposed { mtbf_seconds, nodes } => Failure {
                at_seconds: failure.at_seconds + *mtbf_seconds * self.stream.exponential(),
                node: self.stream.below(*nodes),
            },
            FailureProcess::Renewal { life, heap } => {
                heap.pop();
                let at_seconds = failure.at_seconds + life.draw(&mut self.stream);
                heap.push(Failure { at_seconds, node: failure.node });
                *heap.peek().expect("one entry a node")
            }
            FailureProcess::Replay { trace, next, offset_seconds } => {
                trace.step(next, offset_seconds)
            }
        };
        failure
    }

    /// The failures of a trace at their recorded times: the run enters the trace at its beginning.
    #[cfg(test)]
    pub(super) fn replayed(trace: Trace) -> Self {
        let (mut next, mut offset_seconds) = trace.enter(0.0);
        let first = trace.step(&mut next, &mut offset_seconds);
        let kind = FailureProcess::Replay { trace, next, offset_seconds };
        Self { stream: Stream::new(0), kind, next: first }
    }

    fn start(&mut self, nodes: usize, ages: Ages) {
        self.next = match &mut self.kind {
            FailureProcess::Superposed { mtbf_seconds, .. } => Failure {
                at_seconds: *mtbf_seconds * self.stream.exponential(),
                node: self.stream.below(nodes),
            },
            FailureProcess::Renewal { life, heap } => {
                let mut first = Vec::with_capacity(nodes);
                for node in 0..nodes {
                    let at_seconds = match ages {
                        Ages::New => life.draw(&mut self.stream),
                        Ages::Steady => life.draw_residual(&mut self.stream),
                    };
                    first.push(Failure { at_seconds, node });
                }
                *heap = BinaryHeap::from(first);
                *heap.peek().expect("one entry a node")
            }
            FailureProcess::Replay { trace, next, offset_seconds } => {
                let entered_seconds = self.stream.uniform() * trace.span_seconds();
                (*next, *offset_seconds) = trace.enter(entered_seconds);
                trace.step(next, offset_seconds)
            }
        };
    }
}

#[derive(Debug, Clone, Copy)]
enum Life {
    Weibull { scale_seconds: f64, shape: f64 },
    LogNormal { mu: f64, sigma: f64 },
}

impl Life {
    fn from_law(law: &Law) -> Self {
        match *law {
            // mean = scale Gamma(1 + 1/k)
            Law::Weibull { mtbf_seconds, shape } => Self::Weibull {
                scale_seconds: mtbf_seconds / ln_gamma(1.0 + 1.0 / shape).exp(),
                shape,
            },
            // mean = e^(mu + sigma^2/2)
            Law::LogNormal { mtbf_seconds, sigma } => {
                Self::LogNormal { mu: mtbf_seconds.ln() - sigma * sigma / 2.0, sigma }
            }
            Law::Exponential { .. } | Law::Trace(_) => {
                unreachable!("only laws with a memory are drawn node by node")
            }
        }
    }

    /// The scale of a life: that of the law of Weibull, or the median.
    fn scale_seconds(&self) -> f64 {
        match *self {
            Self::Weibull { scale_seconds, .. } => scale_seconds,
            Self::LogNormal { mu, .. } => mu.exp(),
        }
    }

    fn draw(&self, stream: &mut Stream) -> f64 {
        match *self {
            Self::Weibull { scale_seconds, shape } => {
                scale_seconds * stream.exponential().powf(1.0 / shape)
            }
            Self::LogNormal { mu, sigma } => (mu + sigma * stream.normal()).exp(),
        }
    }

    /// Draws what is left of a life seen at a random time: a uniform share of a life drawn with
    /// probability proportional to its length. Such a life has (x/h)^k ~ Gamma(1 + 1/k) for
    /// Weibull, and mu + sigma^2 in place of mu for the log-normal law.
    fn draw_residual(&self, stream: &mut Stream) -> f64 {
        let whole = match *self {
            Self::Weibull { scale_seconds, shape } => {
                scale_seconds * stream.gamma(1.0 + 1.0 / shape).powf(1.0 / shape)
            }
            Self::LogNormal { mu, sigma } => (mu + sigma * sigma + sigma * stream.normal()).exp(),
        };
        whole * stream.uniform()
    }
}

/// For x >= 1, by Lanczos' series with g = 7 and nine terms, to about 15 digits.
fn ln_gamma(x: f64) -> f64 {
    const G: f64 = 7.0;
    const TERMS: [f64; 9] = [
        0.999_999_999_999_809_9,
        676.520_368_121_885_1,
        -1_259.139_216_722_402_8,
        771.323_428_777_653_1,
        -176.615_029_162_140_6,
        12.507_343_278_686_905,
        -0.138_571_095_265_720_12,
        9.984_369_578_019_572e-6,
        1.505_632_735_149_311_6e-7,
    ];
    let x = x - 1.0;
    let series = (1..9).fold(TERMS[0], |sum, i| sum + TERMS[i] / (x + i as f64));
    let t = x + G + 0.5;
    0.5 * std::f64::consts::TAU.ln() + (x + 0.5) * t.ln() - t + series.ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gamma_function_at_known_points() {
        for (x, gamma) in [(1.0, 1.0), (1.5, 0.886_226_925_452_758), (4.0, 6.0), (6.0, 120.0)] {
            assert!((ln_gamma(x).exp() / gamma - 1.0).abs() < 1e-13, "Gamma({x})");
        }
    }

    fn laws() -> [Law; 4] {
        [
            Law::Exponential { mtbf_seconds: 1e6 },
            Law::Weibull { mtbf_seconds: 1e6, shape: 0.7 },
            Law::Weibull { mtbf_seconds: 1e6, shape: 1.5 },
            Law::LogNormal { mtbf_seconds: 1e6, sigma: 1.0 },
        ]
    }

    /// Whatever the law, a machine in its steady state fails at the rate nodes/MTBF from the first
    /// second on.
    #[test]
    fn steady_platform_has_the_rate_of_its_mean() {
        for law in laws() {
            let mut count = 0.0;
            for stream in Stream::streams(11, 100) {
                let mut source = law.source(1000, Ages::Steady, stream).unwrap();
                while source.pop().at_seconds < 1e5 {
                    count += 1.0;
                }
            }
            // 100 runs x 1000 nodes x 1e5 s / 1e6 s = 10 000 failures; 4 sigma = 400.
            assert!((count - 1e4f64).abs() < 400.0, "{law:?}: {count}");
        }
    }

    #[test]
    fn new_nodes_die_early_when_the_shape_is_below_one() {
        let early = |ages| {
            let law = Law::Weibull { mtbf_seconds: 1e6, shape: 0.5 };
            let mut source = law.source(10_000, ages, Stream::new(3)).unwrap();
            let mut count = 0;
            while source.pop().at_seconds < 1e4 {
                count += 1;
            }
            count
        };
        assert!(early(Ages::New) > 3 * early(Ages::Steady));
    }

    #[test]
    fn failures_come_in_order_and_name_legal_nodes() {
        for law in laws() {
            let mut source = law.source(7, Ages::New, Stream::new(5)).unwrap();
            let mut last = 0.0;
            for _ in 0..1000 {
                let failure = source.pop();
                assert!(failure.at_seconds >= last && failure.node < 7);
                last = failure.at_seconds;
            }
        }
    }

    #[test]
    fn bad_laws_are_refused() {
        let stream = || Stream::new(1);
        for law in [
            Law::Exponential { mtbf_seconds: -1.0 },
            Law::Weibull { mtbf_seconds: 1.0, shape: 0.0 },
            Law::LogNormal { mtbf_seconds: 1.0, sigma: f64::NAN },
            // Their scales are below the smallest number, so that every life would end at once.
            Law::Weibull { mtbf_seconds: 1e8, shape: 0.005 },
            Law::LogNormal { mtbf_seconds: 1e8, sigma: 100.0 },
        ] {
            let why = law.source(2, Ages::New, stream()).expect_err("a refusal").to_string();
            assert!(why.contains(" is out of range: "), "{why}");
        }
        let law = Law::Exponential { mtbf_seconds: 1.0 };
        assert!(law.source(0, Ages::New, stream()).is_err());
    }
}
