//! Figures of Bosilca et al., INRIA RR-7950.

use super::{Content, log_steps, sample, steps};
use crate::StudyError;
use crate::bosilca::{Application, Platform, Scenario, WasteModel};
use crate::plot::{Axis, Body, LineChart, Series};
use skt_model::{ModelError, YEAR_SECONDS};

/// A figure with one panel per platform and application, and one line per protocol.
pub(super) fn waste(caption: &str, platforms: &[Platform]) -> Result<Content, StudyError> {
    let mut panels = Vec::new();
    for platform in platforms {
        for application in Application::ALL {
            panels.push(waste_panel(platform, application)?);
        }
    }
    let caption = format!(
        "Bosilca et al., {caption} Eq. 15 with eq. 17 at the period of least waste, found numerically \
         between G C(q) and 0.1 of the platform's MTBF (eq. 14, 18); a waste of 1 where there \
         is no such period. alpha = 0.3, lambda = 0.98, rho = 1.5, D = 0."
    );
    Ok((caption, Body::Panels { columns: 3, panels }))
}

fn waste_panel(platform: &Platform, application: Application) -> Result<LineChart, ModelError> {
    let series = application
        .scenarios()
        .iter()
        .map(|scenario| {
            let model = scenario.model(platform, application);
            let points = sample(log_steps(1.0, 100.0, 90), |years| {
                Ok(model.best_valid_period(platform.mtbf_seconds(years * YEAR_SECONDS))?.waste)
            })?;
            Ok(Series::line(scenario.name(), points))
        })
        .collect::<Result<Vec<_>, ModelError>>()?;
    Ok(LineChart {
        title: format!("{}, {}", platform.name, application.name()),
        x: Axis::log("processor MTBF (years)", "processor_mtbf_years").between(1.0, 100.0),
        y: Axis::linear("waste (fraction)", "waste_fraction").between(0.0, 1.05),
        series,
    })
}

/// A parameter of the model that a panel varies: its axis, the range, and how it is set.
type Knob = (Axis, [f64; 2], fn(&mut WasteModel, f64));

fn knobs() -> [Knob; 3] {
    [
        (Axis::linear("rho: speed of re-execution", "replay_speed"), [1.0, 2.0], |model, value| {
            model.replay_speed = value;
        }),
        (
            Axis::linear("lambda: speed with logging", "logging_speed"),
            [0.9, 1.0],
            |model, value| {
                model.logging_speed = value;
            },
        ),
        (
            Axis::linear("alpha: overlap (fraction)", "overlap_fraction"),
            [0.0, 1.0],
            |model, value| {
                model.overlap_fraction = value;
            },
        ),
    ]
}

/// The waste that hierarchical protocols save over the coordinated one while rho, lambda or alpha
/// varies. Alpha varies for both, rho and lambda only for the hierarchical ones.
pub(super) fn parameters(
    number: &str,
    platform: &Platform,
    processor_mtbf_years: f64,
) -> Result<Content, StudyError> {
    let mtbf_seconds = platform.mtbf_seconds(processor_mtbf_years * YEAR_SECONDS);
    let cases = [
        (Application::Stencil2d, Scenario::HierarchIo),
        (Application::MatrixProduct, Scenario::HierarchIo),
        (Application::Stencil3d, Scenario::HierarchIoPlane),
        (Application::Stencil2d, Scenario::HierarchPort),
        (Application::MatrixProduct, Scenario::HierarchPort),
    ];
    let mut panels = Vec::new();
    for (axis, [low, high], set) in knobs() {
        let mut series = Vec::new();
        for (application, scenario) in cases {
            let points = sample(steps(low, high, 41), |value| {
                let mut coordinated = Scenario::CoordIo.model(platform, application);
                if axis.column == "overlap_fraction" {
                    set(&mut coordinated, value);
                }
                let mut hierarchical = scenario.model(platform, application);
                set(&mut hierarchical, value);
                let base = coordinated.best_valid_period(mtbf_seconds)?.waste;
                let waste = hierarchical.best_valid_period(mtbf_seconds)?.waste;
                Ok(100.0 * (base - waste) / base)
            })?;
            let name = format!("{}, {}", application.name(), scenario.name());
            series.push(Series::line(name, points));
        }
        panels.push(LineChart {
            title: String::new(),
            x: axis,
            y: Axis::linear("waste saved (%)", "waste_saved_percent").between(-105.0, 105.0),
            series,
        });
    }
    let caption = format!(
        "Bosilca et al., fig. {number}: relative gain (coordinated - hierarchical) / \
         coordinated of the waste at a processor MTBF of {processor_mtbf_years} years, C_Mem = \
         {:.0} s. Below zero the coordinated protocol is better; -100 % is twice its waste.",
        platform.write_seconds
    );
    Ok((caption, Body::Panels { columns: 3, panels }))
}
