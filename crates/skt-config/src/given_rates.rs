use std::path::Path;

use super::draft::Draft;
use super::error::{At, ConfigError};
use super::param::Param;
use super::rates::RateSource;
use super::spec::RunSpec;
use skt_host::infile::{self, LIST_BYTES_MAX};

/// Rates are positive and as many as the grids need.
pub(super) fn settle(spec: &mut RunSpec, draft: &Draft) -> Result<(), ConfigError> {
    let Some(source) = &mut spec.rates else { return Ok(()) };
    let at = || At::param(Param::Rates, &draft.place(Param::Rates));
    if spec.checksums > 0 {
        return Err(at().error(
            "process columns of unequal rates have no checksums with --ft abft, whose groups of \
             block columns go in turn; leave it out, or take another --ft",
        ));
    }
    if let RateSource::Ranks { file, rates } = source {
        *rates = read_file(file).map_err(|why| at().error(why))?;
    }
    let (RateSource::Columns(rates) | RateSource::Ranks { rates, .. }) = &*source else {
        return Ok(());
    };
    if let Some(rate) = rates.iter().find(|rate| !(rate.is_finite() && **rate > 0.0)) {
        return Err(at().error(format!("a rate of {rate}; legal: positive numbers")));
    }
    for &(p, q) in &spec.grids {
        let (needed, what) = match source {
            RateSource::Columns(_) => (q, "process columns"),
            RateSource::Ranks { .. } | RateSource::Measured(_) => (p * q, "ranks"),
        };
        if rates.len() != needed {
            let given = rates.len();
            return Err(at().error(format!(
                "{given} rates, and the {p} x {q} grid has {needed} {what}; legal: one rate each"
            )));
        }
    }
    Ok(())
}

/// The numbers in a file, one a line; what follows `#` is a comment.
fn read_file(file: &str) -> Result<Vec<f64>, String> {
    let text = infile::read_text(Path::new(file), LIST_BYTES_MAX).map_err(|why| {
        format!("`{file}` is no list of numbers, and no file that can be read: {why}")
    })?;
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    let numbers = lines.enumerate().filter(|(_, line)| !line.is_empty()).map(|(index, line)| {
        let number = index + 1;
        line.parse().map_err(|_| format!("{file}, line {number}: `{line}` is not a number"))
    });
    numbers.collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::{Format, parse};

    const EQUAL: [f64; 0] = [];

    fn spec(text: &str) -> Result<RunSpec, String> {
        let text = format!("n = 100\nnb = 8\n{text}\n");
        let checked = parse(text.as_bytes(), "f", Format::Toml, false);
        checked.map(|checked| checked.spec).map_err(|why| why.to_string())
    }

    fn rates(text: &str) -> Vec<f64> {
        spec(text).expect(text).tests().remove(0).rates
    }

    #[test]
    fn a_list_has_a_rate_for_each_process_column() {
        assert_eq!(rates("p = 2\nq = 3\nrates = \"1, 2,0.5\""), [1.0, 2.0, 0.5]);
        assert_eq!(rates("p = 1\nq = 2\nrates = \"3,3\""), EQUAL);
        assert_eq!(rates("p = 1\nq = 2"), EQUAL);
        let lists = spec("p = [1, 2]\nq = [2, 2]\nrates = \"1,2\"").unwrap().tests();
        assert!(lists.iter().all(|test| test.rates == [1.0, 2.0]));
    }

    #[test]
    fn a_process_column_is_as_fast_as_its_slowest_rank() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let name = file.path().display();
        fs::write(file.path(), "200 # node 1\n\n100\n198\n150\n").unwrap();
        // By rows the ranks of the first process column are 0 and 2.
        assert_eq!(rates(&format!("p = 2\nq = 2\nrates = \"{name}\"")), [1.0, 32.0 / 64.0]);
        let by_columns = format!("p = 2\nq = 2\npmap = \"column\"\nrates = \"{name}\"");
        assert_eq!(rates(&by_columns), [43.0 / 64.0, 1.0]);
        fs::write(file.path(), "200\n195\n198\n197\n").unwrap();
        assert_eq!(rates(&format!("p = 1\nq = 4\nrates = \"{name}\"")), EQUAL, "about equal");
    }

    #[test]
    fn measured_rates_are_those_of_ranks_in_parts_of_the_fastest() {
        let mut spec = spec("p = 1\nq = 3\nrates = \"auto\"").unwrap();
        assert_eq!(spec.tests()[0].rates, EQUAL, "not measured");
        spec.rates = Some(RateSource::from_measured(&[30.0, 60.0, 0.001]));
        assert_eq!(spec.rates.as_ref().unwrap().measured(), [32, 64, 1]);
        assert_eq!(spec.tests()[0].rates, [0.5, 1.0, 1.0 / 64.0]);
        spec.rates = Some(RateSource::from_measured(&[59.5, 60.0, 59.0]));
        assert_eq!(spec.tests()[0].rates, EQUAL, "about equal");
    }

    #[test]
    fn rates_that_no_grid_can_have_are_refused() {
        let why = |text: &str| spec(text).expect_err(text);
        let grid = "p = 2\nq = 3\n";
        let few = why(&format!("{grid}rates = \"1,2\""));
        assert!(few.contains("f:5: rates: 2 rates, and the 2 x 3 grid has 3 process"), "{few}");
        for list in ["1,0,1", "1,-2,1", "nan,1,1", "inf,1,1"] {
            let why = why(&format!("{grid}rates = \"{list}\""));
            assert!(why.contains("rates: a rate of ") && why.contains("positive"), "{why}");
        }
        let none = why(&format!("{grid}rates = \"/nowhere/rates\""));
        assert!(none.contains("`/nowhere/rates` is no list of numbers, and no file"), "{none}");
        let abft = why("p = 1\nq = 2\nrates = \"1,2\"\n[checkpoint]\nmethod = \"abft\"");
        assert!(abft.contains("rates: ") && abft.contains("--ft abft"), "{abft}");
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "1\nfast\n").unwrap();
        let text = format!("p = 1\nq = 2\nrates = \"{}\"", file.path().display());
        assert!(why(&text).contains("line 2: `fast` is not a number"), "{}", why(&text));
    }
}
