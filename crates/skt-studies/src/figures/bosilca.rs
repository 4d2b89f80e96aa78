//! Figures of Bosilca et al., INRIA RR-7950.

use super::{log_steps, sample, steps};
use crate::StudyError;
use crate::bosilca::{Application, Platform, Scenario, WasteModel};
use skt_model::plot::{Axis, Body, Figure, LineChart, Series};
use skt_model::{ModelError, YEAR_SECONDS};

pub(super) fn current() -> Result<Figure, StudyError> {
    waste(
        "bosilca-08a-current",
        "Waste on current platforms",
        "Bosilca et al., fig. 8(a).",
        &[Platform::TITAN, Platform::K_COMPUTER],
    )
}

pub(super) fn exascale_1000() -> Result<Figure, StudyError> {
    waste(
        "bosilca-08b-exascale-1000s",
        "Waste at exascale, C = 1000 s",
        "Bosilca et al., fig. 8(b).",
        &[Platform::EXASCALE_SLIM, Platform::EXASCALE_FAT]
            .map(|p| p.with_checkpoint_seconds(1_000.0)),
    )
}

pub(super) fn exascale_100() -> Result<Figure, StudyError> {
    waste(
        "bosilca-08c-exascale-100s",
        "Waste at exascale, C = 100 s",
        "Bosilca et al., fig. 8(c).",
        &[Platform::EXASCALE_SLIM, Platform::EXASCALE_FAT]
            .map(|p| p.with_checkpoint_seconds(100.0)),
    )
}

pub(super) fn exascale_nominal() -> Result<Figure, StudyError> {
    waste(
        "bosilca-09-exascale-nominal",
        "Waste at exascale, C = 64,000 s",
        "Bosilca et al., section 5: with the predicted I/O bandwidth no protocol progresses.",
        &[Platform::EXASCALE_SLIM, Platform::EXASCALE_FAT],
    )
}

/// A figure with one panel per platform and application, and one line per protocol.
fn waste(
    id: &'static str,
    title: &str,
    caption: &str,
    platforms: &[Platform],
) -> Result<Figure, StudyError> {
    let mut panels = Vec::new();
    for platform in platforms {
        for application in Application::ALL {
            panels.push(waste_panel(platform, application)?);
        }
    }
    Ok(Figure {
        id,
        title: title.into(),
        caption: format!(
            "{caption} Eq. 15 with eq. 17 at the period of least waste, found numerically \
             between G C(q) and 0.1 of the platform's MTBF (eq. 14, 18); a waste of 1 where there \
             is no such period. alpha = 0.3, lambda = 0.98, rho = 1.5, D = 0."
        ),
        body: Body::Panels { columns: 3, panels },
    })
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

pub(super) fn parameters_titan() -> Result<Figure, StudyError> {
    parameters("bosilca-10-parameters-titan", "10", &Platform::TITAN, 20.0)
}

pub(super) fn parameters_k() -> Result<Figure, StudyError> {
    parameters("bosilca-11-parameters-k", "11", &Platform::K_COMPUTER, 500.0)
}

pub(super) fn parameters_slim_1000() -> Result<Figure, StudyError> {
    let platform = Platform::EXASCALE_SLIM.with_checkpoint_seconds(1_000.0);
    parameters("bosilca-12-parameters-slim-1000s", "12", &platform, 500.0)
}

pub(super) fn parameters_fat_1000() -> Result<Figure, StudyError> {
    let platform = Platform::EXASCALE_FAT.with_checkpoint_seconds(1_000.0);
    parameters("bosilca-13-parameters-fat-1000s", "13", &platform, 100.0)
}

pub(super) fn parameters_slim_100() -> Result<Figure, StudyError> {
    let platform = Platform::EXASCALE_SLIM.with_checkpoint_seconds(100.0);
    parameters("bosilca-14-parameters-slim-100s", "14", &platform, 100.0)
}

pub(super) fn parameters_fat_100() -> Result<Figure, StudyError> {
    let platform = Platform::EXASCALE_FAT.with_checkpoint_seconds(100.0);
    parameters("bosilca-15-parameters-fat-100s", "15", &platform, 20.0)
}

/// A parameter of the model that a panel varies.
struct Knob {
    axis: Axis,
    low: f64,
    high: f64,
    set: fn(&mut WasteModel, f64),
}

fn knobs() -> [Knob; 3] {
    [
        Knob {
            axis: Axis::linear("rho: speed of re-execution", "replay_speed"),
            low: 1.0,
            high: 2.0,
            set: |model, value| model.replay_speed = value,
        },
        Knob {
            axis: Axis::linear("lambda: speed with logging", "logging_speed"),
            low: 0.9,
            high: 1.0,
            set: |model, value| model.logging_speed = value,
        },
        Knob {
            axis: Axis::linear("alpha: overlap (fraction)", "overlap_fraction"),
            low: 0.0,
            high: 1.0,
            set: |model, value| model.overlap_fraction = value,
        },
    ]
}

/// The waste that hierarchical protocols save over the coordinated one while rho, lambda or alpha
/// varies. Alpha varies for both, rho and lambda only for the hierarchical ones.
fn parameters(
    id: &'static str,
    number: &str,
    platform: &Platform,
    processor_mtbf_years: f64,
) -> Result<Figure, StudyError> {
    let mtbf_seconds = platform.mtbf_seconds(processor_mtbf_years * YEAR_SECONDS);
    let cases = [
        (Application::Stencil2d, Scenario::HierarchIo),
        (Application::MatrixProduct, Scenario::HierarchIo),
        (Application::Stencil3d, Scenario::HierarchIoPlane),
        (Application::Stencil2d, Scenario::HierarchPort),
        (Application::MatrixProduct, Scenario::HierarchPort),
    ];
    let mut panels = Vec::new();
    for knob in knobs() {
        let mut series = Vec::new();
        for (application, scenario) in cases {
            let points = sample(steps(knob.low, knob.high, 41), |value| {
                let mut coordinated = Scenario::CoordIo.model(platform, application);
                if knob.axis.column == "overlap_fraction" {
                    (knob.set)(&mut coordinated, value);
                }
                let mut hierarchical = scenario.model(platform, application);
                (knob.set)(&mut hierarchical, value);
                let base = coordinated.best_valid_period(mtbf_seconds)?.waste;
                let waste = hierarchical.best_valid_period(mtbf_seconds)?.waste;
                Ok(100.0 * (base - waste) / base)
            })?;
            let name = format!("{}, {}", application.name(), scenario.name());
            series.push(Series::line(name, points));
        }
        panels.push(LineChart {
            title: String::new(),
            x: knob.axis,
            y: Axis::linear("waste saved (%)", "waste_saved_percent").between(-105.0, 105.0),
            series,
        });
    }
    Ok(Figure {
        id,
        title: format!(
            "{}: what the parameters do, MTBF of {processor_mtbf_years} years",
            platform.name
        ),
        caption: format!(
            "Bosilca et al., fig. {number}: relative gain (coordinated - hierarchical) / \
             coordinated of the waste at a processor MTBF of {processor_mtbf_years} years, C_Mem = \
             {:.0} s. Below zero the coordinated protocol is better; -100 % is twice its waste.",
            platform.write_seconds
        ),
        body: Body::Panels { columns: 3, panels },
    })
}
