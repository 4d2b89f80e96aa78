//! HPL-MxP: what it allows of the parameters of a run, and which of them it does not use.

use skt_checkpoint::checkpoint::methods::Method;
use skt_host::choice::{Generator, OnLoss};

use super::checkpoint::Setting;
use super::draft::Draft;
use super::error::{At, ConfigError, Warning};
use super::param::Param;
use super::spec::RunSpec;

/// The largest scaled residual of a valid result, by the rules of HPL-MxP.
const THRESHOLD: f64 = 16.0;

/// Refuses this parameter of HPL-MxP for a run of HPL, if it was given.
pub(super) fn refuse(param: Param, draft: &Draft) -> Result<(), ConfigError> {
    if !draft.values.contains_key(&param) {
        return Ok(());
    }
    Err(At::param(param, &draft.place(param)).error(
        "is a parameter of HPL-MxP; run this configuration by `skt-hpl mxp`, tune it by \
         `skt-hpl tune --mxp`, or leave it out",
    ))
}

/// Refuses an HPL-MxP.dat for a run of HPL.
pub(super) fn refuse_form(draft: &Draft, file: &str) -> Result<(), ConfigError> {
    if !draft.has_mxp_form {
        return Ok(());
    }
    let what = "has the 14 lines of an HPL-MxP.dat, which `skt-hpl mxp` runs; an HPL.dat has 31";
    Err(ConfigError::in_file(file, what))
}

/// Refuses protection by checksums. Grids depend on their number, so this comes first.
pub(super) fn refuse_checksums(draft: &Draft) -> Result<(), ConfigError> {
    let given = |setting: Setting| draft.checkpoint.get(&setting);
    if let Some(method) = given(Setting::Method).filter(|value| value.text == Method::Abft.name()) {
        return Err(Setting::Method.at(&method.place).error(
            "abft has no checksums for the factorization of HPL-MxP, which keeps L and is in \
             single precision; take self, double, single or none",
        ));
    }
    match given(Setting::OnLoss).filter(|value| value.text != OnLoss::Restart.name()) {
        Some(on_loss) => Err(Setting::OnLoss.at(&on_loss.place).error(
            "a job that continues after a loss needs --ft abft, which HPL-MxP does not have; \
             leave it out: the same command continues the run, and `skt-hpl launch` gives it",
        )),
        None => Ok(()),
    }
}

/// Refuses what the rules or the matrices do not allow, and removes the variants of a panel, of
/// which HPL-MxP has none. Returns a warning about lists that make no tests here.
pub(super) fn settle(spec: &mut RunSpec, draft: &Draft) -> Result<Option<Warning>, ConfigError> {
    let at = |param| At::param(param, &draft.place(param));
    if spec.threshold > 0.0 && spec.threshold != THRESHOLD {
        return Err(at(Param::Threshold).error(format!(
            "value {:?}: the rules of HPL-MxP fix the threshold at {THRESHOLD:?}; legal: \
             {THRESHOLD:?}, or 0 or less for a run without a check",
            spec.threshold
        )));
    }
    if spec.generator != Generator::Hpl {
        return Err(at(Param::Generator).error(format!(
            "{} makes no matrix of HPL-MxP: scaled and dominant are made of HPL's random numbers, \
             fasi-higham of none; leave it out",
            spec.generator
        )));
    }
    let lists = [
        (Param::Pfact, first_of(&mut spec.pfact)),
        (Param::Nbmin, first_of(&mut spec.nbmin)),
        (Param::Ndiv, first_of(&mut spec.ndiv)),
        (Param::Rfact, first_of(&mut spec.rfact)),
    ];
    let several: Vec<Param> =
        lists.into_iter().filter(|(_, had_more)| *had_more).map(|(param, _)| param).collect();
    let Some(&first) = several.first() else { return Ok(None) };
    let names: Vec<String> = several.iter().map(|param| at(*param).name).collect();
    let what = format!(
        "HPL-MxP factors without pivoting and has no variants of a panel: the lists of {} make no \
         further tests",
        names.join(", ")
    );
    Ok(Some(Warning { at: at(first), what }))
}

/// Cuts a list after its first value; returns whether it had more.
fn first_of<T>(list: &mut Vec<T>) -> bool {
    let had_more = list.len() > 1;
    list.truncate(1);
    had_more
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draft::Draft;
    use crate::protection::Settings;
    use crate::spec::{Bcast, GemmPrecision, MxpMatrix, TestSpec};
    use crate::{Checked, Format, ValidationRules, parse, read_draft, validate};

    /// Checks a text as `skt-hpl mxp` does, or as a run of HPL.
    fn read(text: &str, format: Format, is_mxp: bool) -> Result<Checked, ConfigError> {
        let (draft, _): (Draft, _) = read_draft(text.as_bytes(), "f", format, false)?;
        validate(&draft, &ValidationRules { lenient: false, ranks: Some(4), source: "f", is_mxp })
    }

    fn toml(text: &str) -> Result<Checked, ConfigError> {
        read(&format!("n = 100\nnb = 8\n{text}\n"), Format::Toml, true)
    }

    fn refusal(text: &str) -> String {
        toml(text).map(|checked| checked.spec).expect_err(text).to_string()
    }

    #[test]
    fn the_matrix_is_that_of_fasi_and_higham_or_a_named_one() {
        assert_eq!(toml("").unwrap().spec.mxp, Some(MxpMatrix::FasiHigham));
        for matrix in MxpMatrix::ALL {
            let checked = toml(&format!("matrix = \"{matrix}\"")).unwrap();
            assert_eq!((checked.spec.mxp, checked.warnings), (Some(matrix), Vec::new()));
            assert!(checked.spec.tests().iter().all(|test| test.mxp == Some(matrix)));
        }
        assert!(refusal("matrix = \"hilbert\"").starts_with("f:3: matrix: `hilbert` is not one"));
        assert!(refusal("matrix = [\"scaled\", \"dominant\"]").contains("2 values where one"));
    }

    #[test]
    fn a_run_of_hpl_has_no_parameter_of_hpl_mxp() {
        for (key, line) in [
            ("matrix", "matrix = \"scaled\""),
            ("gemm", "gemm = \"bf16\""),
            ("gemm", "gemm = \"fp32\""),
        ] {
            let text = format!("n = 100\n{line}\n");
            let why = read(&text, Format::Toml, false).map(|_| ()).expect_err(&text).to_string();
            assert!(why.starts_with(&format!("f:2: {key}: ")), "{why}");
            assert!(why.contains("is a parameter of HPL-MxP; run"), "{why}");
            assert!(why.contains("`skt-hpl mxp`"), "{why}");
            // Without a command, the text decides.
            let text = format!("n = 100\np = 1\nq = 1\n{line}\n");
            let spec = parse(text.as_bytes(), "f", Format::Toml, false).unwrap().spec;
            assert_eq!(spec.tests()[0].element_bytes(), 4, "{line}");
        }
        let hpl = read("n = 100\n", Format::Toml, false).unwrap().spec;
        assert_eq!((hpl.mxp, hpl.tests()[0].mxp), (None, None));
        assert_eq!(hpl.tests()[0].element_bytes(), 8);
        let json = serde_json::to_string(&hpl.tests()[0]).unwrap();
        assert!(!json.contains("gemm") && !json.contains("matrix"), "{json}");
    }

    #[test]
    fn products_are_in_single_precision_unless_named() {
        let spec = toml("").unwrap().spec;
        assert_eq!((spec.gemm, spec.tests()[0].gemm), (GemmPrecision::Fp32, GemmPrecision::Fp32));
        assert!(!serde_json::to_string(&spec.tests()[0]).unwrap().contains("gemm"));
        for gemm in GemmPrecision::ALL {
            let checked = toml(&format!("gemm = \"{gemm}\"")).unwrap();
            let matrix = Some(MxpMatrix::FasiHigham);
            assert_eq!((checked.spec.gemm, checked.spec.mxp), (gemm, matrix));
            assert_eq!(checked.warnings, []);
            for test in checked.spec.tests() {
                assert_eq!(test.gemm, gemm);
                let json = serde_json::to_value(&test).unwrap();
                let key = gemm.is_rounded().then(|| gemm.name().into());
                assert_eq!(json.get("gemm").cloned(), key, "JSON and the configuration agree");
                assert_eq!(serde_json::from_value::<TestSpec>(json).unwrap(), test);
            }
        }
        let why = refusal("gemm = \"fp16\"");
        assert!(why.starts_with("f:3: gemm: `fp16` is not one"), "{why}");
        assert!(why.contains("fp32") && why.contains("bf16-emulated"), "{why}");
        assert!(refusal("gemm = [\"fp32\", \"bf16\"]").contains("2 values where one"));
    }

    const MXP_DAT: &str = "a\nb\nHPL-MxP.out file\n6 device\n2 # of N\n64 128 Ns\n1 # of NBs\n\
                           32 NBs\n1 PMAP\n1 P\n2 Q\n16.0 threshold\n2 # of broadcast\n\
                           0 3 BCASTs\n";

    #[test]
    fn the_14_lines_of_another_hpl_mxp_are_read() {
        let texts = [
            MXP_DAT.to_owned(),
            format!("{MXP_DAT}\n \n"),
            MXP_DAT.replace("1 P\n2 Q", "1\n2").replace("device", "# device"),
        ];
        for text in texts {
            let checked = read(&text, Format::Dat, true).unwrap();
            let spec = checked.spec;
            assert_eq!((spec.n, spec.nb, spec.grids), (vec![64, 128], vec![32], vec![(1, 2)]));
            assert_eq!(spec.bcast, [Bcast::OneRing, Bcast::TwoRingM]);
            assert_eq!(spec.mxp, Some(MxpMatrix::FasiHigham));
            assert_eq!(checked.warnings, []);
            assert!(parse(text.as_bytes(), "f", Format::Dat, true).is_ok(), "by its form");
            let why = read(&text, Format::Dat, false).map(|_| ()).unwrap_err().to_string();
            assert!(why.starts_with("f: has the 14 lines of an HPL-MxP.dat, which"), "{why}");
        }
        // The first 14 lines of an HPL.dat are no HPL-MxP.dat.
        let cut = MXP_DAT.replace("1 P\n2 Q\n", "1 # of process grids\n1 Ps\n2 Qs\n");
        let cut: Vec<&str> = cut.lines().take(14).collect();
        let why = read(&cut.join("\n"), Format::Dat, true).map(|_| ()).unwrap_err().to_string();
        assert!(why.contains("the file ends after line 14; line 15"), "{why}");
        let why = MXP_DAT.replace("1 P\n", "0 P\n");
        let why = read(&why, Format::Dat, true).map(|_| ()).unwrap_err().to_string();
        assert!(why.starts_with("f:10: Ps: value 0 is out of range"), "{why}");
    }

    #[test]
    fn the_rules_fix_the_threshold() {
        for threshold in ["16", "16.0", "0", "-1.5"] {
            assert!(toml(&format!("threshold = {threshold}")).is_ok(), "{threshold}");
        }
        for threshold in ["15.9", "1e9", "0.1"] {
            let why = refusal(&format!("threshold = {threshold}"));
            assert!(why.starts_with("f:3: threshold: value "), "{why}");
            assert!(why.contains("the rules of HPL-MxP fix the threshold at 16.0"), "{why}");
        }
    }

    #[test]
    fn what_has_no_meaning_is_refused_by_name_and_reason() {
        let why = refusal("generator = \"xoshiro\"");
        assert!(why.starts_with("f:3: generator: xoshiro makes no matrix of HPL-MxP"), "{why}");
        let why = refusal("[checkpoint]\nmethod = \"abft\"");
        assert!(why.starts_with("f:4: checkpoint.method: abft has no checksums for"), "{why}");
        for how in ["recover", "replace"] {
            let why = refusal(&format!("[checkpoint]\non_loss = \"{how}\""));
            assert!(why.starts_with("f:4: checkpoint.on_loss: ") && why.contains("--ft abft"));
        }
        for method in ["self", "double", "single", "none"] {
            let table = format!("[checkpoint]\nmethod = \"{method}\"\non_loss = \"restart\"");
            let checked = toml(&table).unwrap();
            let settings = Settings::read(&checked.checkpoint, &checked.spec).unwrap();
            assert_eq!(settings.method.name(), method);
        }
    }

    #[test]
    fn lists_of_panel_variants_make_no_tests() {
        let lists = "pfact = [0, 1, 2]\nnbmin = [2, 4]\nndiv = [2, 3]\nrfact = [0, 1]\n";
        let others = "depth = [0, 1]\nbcast = [0, 3]\n";
        let checked = toml(&format!("{others}{lists}")).unwrap();
        assert_eq!(checked.spec.tests().len(), 4);
        assert_eq!(checked.spec.test_count(), 4);
        assert_eq!(checked.spec.bcast, [Bcast::OneRing, Bcast::TwoRingM]);
        let warnings: Vec<String> = checked.warnings.iter().map(ToString::to_string).collect();
        let want = "f:5: pfact: HPL-MxP factors without pivoting and has no variants of a panel: \
                    the lists of pfact, nbmin, ndiv, rfact make no further tests";
        assert_eq!(warnings, [want]);
        // Single values, and those that no panel can use, are those of an HPL.dat for HPL.
        assert_eq!(toml("pfact = 0\nnbmin = 500\nndiv = 50").unwrap().warnings, []);
        // More tests than are legal, if the lists counted.
        let twenty = |key: &str| format!("{key} = [{}]\n", vec!["2"; 20].join(", "));
        let many = ["n", "pfact", "nbmin", "ndiv", "rfact"].map(twenty).concat();
        assert_eq!(read(&many, Format::Toml, true).unwrap().spec.test_count(), 20);
    }
}
