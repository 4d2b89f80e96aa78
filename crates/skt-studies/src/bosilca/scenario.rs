//! Sections 4.1, 4.2 and 4.4: protocols and applications.

use skt_host::named;

use super::{Platform, WasteModel};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Application {
    /// n x n reals, each averaged with its 8 neighbours.
    Stencil2d,
    /// Products of n x n matrices by Cannon's algorithm; three matrices.
    MatrixProduct,
    /// n^3 reals, each averaged with its 26 neighbours.
    Stencil3d,
}

// The names as printed.
named!(Application {
    Stencil2d: "2D-STENCIL",
    MatrixProduct: "MATRIX-PRODUCT",
    Stencil3d: "3D-STENCIL",
});

impl Application {
    /// The protocols that the paper tries on this application.
    pub fn scenarios(self) -> &'static [Scenario] {
        match self {
            Self::Stencil2d | Self::MatrixProduct => {
                &[Scenario::CoordIo, Scenario::HierarchIo, Scenario::HierarchPort]
            }
            Self::Stencil3d => &[
                Scenario::CoordIo,
                Scenario::HierarchIoPlane,
                Scenario::HierarchIoLine,
                Scenario::HierarchPort,
            ],
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scenario {
    /// One checkpoint of everything, to stable storage.
    CoordIo,
    /// One group per row of the 2D grid of processors.
    HierarchIo,
    /// One group per plane of the 3D grid.
    HierarchIoPlane,
    /// One group per line of the 3D grid.
    HierarchIoLine,
    /// The smallest groups that saturate the I/O network.
    HierarchPort,
}

// The names as printed.
named!(Scenario {
    CoordIo: "COORD-IO",
    HierarchIo: "HIERARCH-IO",
    HierarchIoPlane: "HIERARCH-IO-PLANE",
    HierarchIoLine: "HIERARCH-IO-LINE",
    HierarchPort: "HIERARCH-PORT",
});

impl Scenario {
    /// G, rounded as in tables 2 and 3: rows and lines down, planes up, port groups to the nearest.
    pub fn groups(self, platform: &Platform) -> usize {
        let p = platform.processors as f64;
        // In floating point, a cube root may miss an integer by a rounding error.
        let (edge, slack) = (p.cbrt(), 1e-9);
        let groups = match self {
            Self::CoordIo => 1.0,
            Self::HierarchIo => p.sqrt().floor(),
            Self::HierarchIoPlane => (edge - slack).ceil(),
            Self::HierarchIoLine => (edge * edge + slack).floor(),
            Self::HierarchPort => (p / platform.smallest_group as f64).round(),
        };
        groups as usize
    }

    /// Number of neighbour directions of the grid whose messages are logged, in units of beta: 1
    /// for rows of a 2D grid, 2 for both directions; 1, 2, 3 in 3D.
    fn logged_directions(self, application: Application) -> f64 {
        match (self, application) {
            (Self::CoordIo, _) => 0.0,
            (Self::HierarchIo | Self::HierarchIoPlane, _) => 1.0,
            (Self::HierarchIoLine, _) => 2.0,
            (Self::HierarchPort, Application::Stencil3d) => 3.0,
            (Self::HierarchPort, _) => 2.0,
        }
    }

    /// beta: the growth of the checkpoint per second of work, as a share of its size (section 4.2),
    /// times the number of directions that are logged, where b is the edge of a processor's block:
    /// - 2D-STENCIL: `2 s_p / (9 b^3)`, `8 b^2` bytes per processor,
    /// - MATRIX-PRODUCT: `s_p / (6 b^3)`, `24 b^2` bytes,
    /// - 3D-STENCIL: `2 s_p / (27 b^4)`, `8 b^3` bytes; the paper prints b^3, but two faces of b^2
    ///   over `b^3 27 b^3 / s_p` make b^4, and table 3 was computed with b^4.
    pub fn growth_per_second(self, platform: &Platform, application: Application) -> f64 {
        let (bytes, speed) = (platform.processor_memory_bytes, platform.processor_flops);
        let one_direction = match application {
            Application::Stencil2d => {
                let edge = (bytes / 8.0).sqrt();
                2.0 * speed / (9.0 * edge.powi(3))
            }
            Application::MatrixProduct => {
                let edge = (bytes / 24.0).sqrt();
                speed / (6.0 * edge.powi(3))
            }
            Application::Stencil3d => {
                let edge = (bytes / 8.0).cbrt();
                2.0 * speed / (27.0 * edge.powi(4))
            }
        };
        self.logged_directions(application) * one_direction
    }

    /// With the paper's rho = 1.5, lambda = 0.98, alpha = 0.3 (section 4.4) and no downtime: only D
    /// = 0 gives the 4.32 h of section 5.
    pub fn model(self, platform: &Platform, application: Application) -> WasteModel {
        let groups = self.groups(platform);
        let share = 1.0 / groups as f64;
        let logged = self != Self::CoordIo;
        WasteModel {
            groups,
            checkpoint_seconds: platform.write_seconds * share,
            recovery_seconds: platform.read_seconds * share,
            downtime_seconds: 0.0,
            overlap_fraction: 0.3,
            logging_speed: if logged { 0.98 } else { 1.0 },
            replay_speed: if logged { 1.5 } else { 1.0 },
            growth_per_second: self.growth_per_second(platform, application),
        }
    }
}
