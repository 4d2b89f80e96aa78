//! Tests of both forms together with the validator: what is accepted, the message for each kind of
//! bad input, and that nothing panics.

use proptest::prelude::*;
use skt_host::thread_clock::thread_cpu_seconds;

use super::param::{PARAMS, Param};
use super::spec::clean_title;
use super::value::{Row, Table, Written};
use super::*;

const REFERENCE: &str = "\
HPLinpack benchmark input file
Innovative Computing Laboratory, University of Tennessee
HPL.out      output file name (if any)
6            device out (6=stdout,7=stderr,file)
4            # of problems sizes (N)
29 30 34 35  Ns
4            # of NBs
1 2 3 4      NBs
0            PMAP process mapping (0=Row-,1=Column-major)
3            # of process grids (P x Q)
2 1 4        Ps
2 4 1        Qs
16.0         threshold
3            # of panel fact
0 1 2        PFACTs (0=left, 1=Crout, 2=Right)
2            # of recursive stopping criterium
2 4          NBMINs (>= 1)
1            # of panels in recursion
2            NDIVs
3            # of recursive panel fact.
0 1 2        RFACTs (0=left, 1=Crout, 2=Right)
1            # of broadcast
0            BCASTs (0=1rg,1=1rM,2=2rg,3=2rM,4=Lng,5=LnM)
1            # of lookahead depth
0            DEPTHs (>=0)
2            SWAP (0=bin-exch,1=long,2=mix)
64           swapping threshold
0            L1 in (0=transposed,1=no-transposed) form
0            U  in (0=transposed,1=no-transposed) form
1            Equilibration (0=no,1=yes)
8            memory alignment in double (> 0)
";

const TOML: &str = "n = [29, 30]\nnb = 4\np = 2\nq = 2\n";

fn dat(text: &str) -> Result<Checked, ConfigError> {
    parse(text.as_bytes(), "HPL.dat", Format::Dat, false)
}

fn lenient(text: &str) -> Result<Checked, ConfigError> {
    parse(text.as_bytes(), "HPL.dat", Format::Dat, true)
}

fn toml_text(text: &str) -> Result<Checked, ConfigError> {
    parse(text.as_bytes(), "hpl.toml", Format::Toml, false)
}

/// The reference's file with one line replaced; `number` counts from 1.
fn with_line(number: usize, line: &str) -> String {
    let mut lines: Vec<&str> = REFERENCE.lines().collect();
    lines[number - 1] = line;
    lines.join("\n") + "\n"
}

fn message(result: Result<Checked, ConfigError>) -> String {
    match result {
        Ok(checked) => panic!("accepted: {:?}", checked.spec),
        Err(error) => error.to_string(),
    }
}

#[test]
fn the_references_file_is_864_tests_on_its_three_grids() {
    let checked = dat(REFERENCE).unwrap();
    assert_eq!(checked.warnings, []);
    let spec = checked.spec;
    assert_eq!(spec.tests().len(), 864);
    assert_eq!(spec.grids, [(2, 2), (1, 4), (4, 1)]);
    assert_eq!(spec.n, [29, 30, 34, 35]);
    assert_eq!(spec.nb, [1, 2, 3, 4]);
    assert_eq!(spec.output, Output::Stdout);
    assert_eq!(spec.pmap, Pmap::RowMajor);
    assert_eq!(spec.threshold, 16.0);
    assert_eq!(spec.pfact, [Fact::Left, Fact::Crout, Fact::Right]);
    assert_eq!(spec.rfact, [Fact::Left, Fact::Crout, Fact::Right]);
    assert_eq!((spec.nbmin, spec.ndiv), (vec![2, 4], vec![2]));
    assert_eq!(spec.bcast, [Bcast::OneRing]);
    assert_eq!(spec.depth, [0]);
    assert_eq!((spec.swap, spec.swap_threshold), (Swap::Mix, 64));
    assert!((spec.l1, spec.u, spec.equilibration) == (Form::Transposed, Form::Transposed, true));
    assert_eq!(spec.align_doubles, 8);
    assert_eq!((spec.generator, spec.threads), (Generator::Hpl, 1));
    assert_eq!(spec.title[1], "Innovative Computing Laboratory, University of Tennessee");
}

#[test]
fn our_text_of_the_references_file_is_the_references() {
    let spec = dat(REFERENCE).unwrap().spec;
    let text = hpldat::write(&spec).unwrap();
    // The list of broadcasts may continue after the reference's last.
    let (begin, rest) = text.split_once("5=LnM").unwrap();
    let (_, end) = rest.split_once(')').unwrap();
    assert_eq!(format!("{begin}5=LnM){end}"), REFERENCE);
    assert_eq!(hpldat::flags_besides(&spec), Vec::<String>::new());
}

#[test]
fn line_ends_blanks_and_strange_bytes_in_comments_do_not_matter() {
    let spec = dat(REFERENCE).unwrap().spec;
    let variants = [
        REFERENCE.replace('\n', "\r\n").into_bytes(),
        REFERENCE.trim_end().as_bytes().to_vec(),
        REFERENCE.replace("  ", "\t").into_bytes(),
        REFERENCE.replace("29 30", "  29   30").into_bytes(),
        [&[0xef, 0xbb, 0xbf], REFERENCE.as_bytes()].concat(),
        [REFERENCE.as_bytes(), b"##### line 32 is not read \xff\n0 PTRANS"].concat(),
    ];
    for bytes in variants {
        let checked = parse(&bytes, "HPL.dat", Format::Dat, false).unwrap();
        assert_eq!(checked.spec, spec);
    }
    let latin1: Vec<u8> = REFERENCE.bytes().map(|b| if b == b'>' { 0xe9 } else { b }).collect();
    assert_eq!(parse(&latin1, "HPL.dat", Format::Dat, false).unwrap().spec, spec);
}

#[test]
fn bad_lines_name_file_line_parameter_value_and_legal_range() {
    for case in BAD_LINES.replace("{broadcasts}", &broadcasts()).lines() {
        let [line, text, want] = split_case(case);
        let printed = message(dat(&with_line(line.parse().unwrap(), text)));
        let (printed, _) = printed.split_once("; --lenient takes ").unwrap_or((&printed, ""));
        assert_eq!(printed, format!("HPL.dat:{want}"), "{case}");
    }
}

/// Lines of HPL.dat, what is in them, and the message after the name of the file, where
/// `{broadcasts}` stands for [`broadcasts`].
const BAD_LINES: &str = "\
4 | file | 4: device out: `file` is not a whole number; legal: 6 (stdout), 7 (stderr), any other number for the file
5 | 0 # of Ns | 5: # of problem sizes (N): value 0 is out of range; legal: 1 to 20
5 | 21 # of Ns | 5: # of problem sizes (N): value 21 is out of range; legal: 1 to 20
5 | many | 5: # of problem sizes (N): `many` is not a whole number; legal: 1 to 20
5 |  | 5: # of problem sizes (N): no value is given; legal: 1 to 20
6 | 29 30 Ns | 6: Ns: 2 of 4 values found (line 5 gives 4); `Ns` is not a number
6 | 29 30 | 6: Ns: 2 of 4 values found (line 5 gives 4); then the line ends
6 |  | 6: Ns: no value is given; legal: 0 to 4294967295
6 | 29 30 34 -1 | 6: Ns: value -1 is out of range; legal: 0 to 4294967295
6 | 1 2 3 4294967296 | 6: Ns: value 4294967296 is out of range; legal: 0 to 4294967295
6 | 1 2 3 99999999999999999999 | 6: Ns: value 99999999999999999999 is out of range; legal: 0 to 4294967295
6 | 1e3 30 34 35 | 6: Ns: `1e3` is not a whole number; legal: 0 to 4294967295
6 | 1000.0 30 34 35 | 6: Ns: `1000.0` is not a whole number; legal: 0 to 4294967295
8 | 1 0 3 4 | 8: NBs: value 0 is out of range; legal: 1 or more
8 | 1 2147483648 3 4 | 8: NBs: value 2147483648 is out of range; legal: 1 to 2147483647
9 | 2 | 9: PMAP: value 2 is out of range; legal: 0 (row), 1 (column)
10 | 4 | 11: Ps: 3 of 4 values found (line 10 gives 4); `Ps` is not a number
11 | 2 0 4 Ps | 11: Ps: value 0 is out of range; legal: 1 or more
12 | 2 4 0 Qs | 12: Qs: value 0 is out of range; legal: 1 or more
12 | 2 4 2147483647 | 12: Qs: the 4 x 2147483647 grid has more than 2147483647 processes; legal: P x Q below that
13 | sixteen | 13: threshold: `sixteen` is not a number; legal: a finite number, e.g. 16.0
13 | inf | 13: threshold: value inf is out of range; legal: a finite number, e.g. 16.0
13 | NaN | 13: threshold: value NaN is out of range; legal: a finite number, e.g. 16.0
15 | 0 1 3 | 15: PFACTs: value 3 is out of range; legal: 0 (left), 1 (crout), 2 (right)
17 | 2 0 | 17: NBMINs: value 0 is out of range; legal: 1 or more
19 | 1 NDIVs | 19: NDIVs: value 1 is out of range; legal: 2 or more
21 | 0 -1 2 | 21: RFACTs: value -1 is out of range; legal: 0 (left), 1 (crout), 2 (right)
23 | 99 | 23: BCASTs: value 99 is out of range; legal: {broadcasts}
23 | 1ring | 23: BCASTs: `1ring` is not a whole number; legal: {broadcasts}
25 | -1 | 25: DEPTHs: value -1 is out of range; legal: 0 or more
26 | 3 | 26: SWAP: value 3 is out of range; legal: 0 (binary-exchange), 1 (spread-roll), 2 (mix)
27 | -1 | 27: swapping threshold: value -1 is out of range; legal: 0 or more
28 | 2 | 28: L1: value 2 is out of range; legal: 0 (transposed), 1 (no-transposed)
29 | 2 | 29: U: value 2 is out of range; legal: 0 (transposed), 1 (no-transposed)
30 | 2 | 30: Equilibration: value 2 is out of range; legal: 0 (no), 1 (yes)
31 | 0 | 31: memory alignment: value 0 is out of range; legal: 1 or more
31 | \u{1b}[2J | 31: memory alignment: `\\u{1b}[2J` is not a whole number; legal: 1 or more";

/// The broadcasts as messages about HPL.dat list them.
fn broadcasts() -> String {
    let words = Bcast::ALL.map(|bcast| format!("{} ({})", bcast.code(), bcast.name()));
    words.join(", ")
}

pub(super) fn split_case<const N: usize>(case: &str) -> [&str; N] {
    let columns: Vec<&str> = case.split(" | ").collect();
    columns.try_into().expect(case)
}

/// What is reported for a file: the error, or the warnings.
fn reported(text: &str) -> String {
    match dat(text) {
        Ok(checked) => {
            checked.warnings.iter().map(|warning| format!("{warning}\n")).collect::<String>()
        }
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_short_file_names_the_line_that_is_missing() {
    for kept in 0..27 {
        let text: String = REFERENCE.lines().take(kept).map(|l| format!("{l}\n")).collect();
        let message = message(dat(&text));
        let want = format!("HPL.dat: the file ends after line {kept}; line {} (", kept + 1);
        assert!(message.starts_with(&want), "{message}");
    }
}

#[test]
fn the_last_four_lines_are_moot_and_may_lack() {
    let spec = dat(REFERENCE).unwrap().spec;
    for kept in 27..hpldat::LINES {
        let text: String = REFERENCE.lines().take(kept).map(|l| format!("{l}\n")).collect();
        for text in [text.clone(), text.trim_end().to_owned(), text + "\r\n  \n"] {
            let checked = dat(&text).unwrap();
            assert_eq!(checked.spec, spec, "{kept} lines");
            let lines: Vec<String> = checked.warnings.iter().map(ToString::to_string).collect();
            assert_eq!(lines.len(), hpldat::LINES - kept, "{lines:?}");
            let last = "HPL.dat:31: memory alignment: no value is given; it has no effect here, 8 \
                        is reported";
            assert_eq!(lines.last().unwrap(), last);
        }
    }
}

#[test]
fn what_lenience_would_take_is_named() {
    let of_broadcasts = format!(
        "value 99 is out of range; legal: {}; --lenient takes 1 (1ringM) in its place, as the \
         reference does",
        broadcasts()
    );
    let cases = [
        (
            4,
            "file",
            "`file` is not a whole number; legal: 6 (stdout), 7 (stderr), any other number \
                     for the file; --lenient takes 0 in its place, as the reference does",
        ),
        (
            5,
            "4x",
            "`4x` is not a whole number; legal: 1 to 20; --lenient takes 4 in its place, as \
                   the reference does",
        ),
        (
            13,
            "sixteen",
            "`sixteen` is not a number; legal: a finite number, e.g. 16.0; \
                         --lenient takes 0.0 in its place, as the reference does",
        ),
        (23, "99", &of_broadcasts),
    ];
    for (line, text, want) in cases {
        let text = with_line(line, text);
        let printed = message(dat(&text));
        assert!(printed.ends_with(want), "{printed}");
        assert!(lenient(&text).is_ok());
    }
    // Leniency is not named where it does not help.
    for (line, text) in [(5, "x"), (11, "0 1 4"), (6, "1 2 3 -99999999999"), (25, "-1")] {
        let printed = message(dat(&with_line(line, text)));
        assert!(!printed.contains("lenient"), "{printed}");
    }
}

/// Files as people have written them in twenty years: each is a run, or a mistake that `--lenient`
/// reads as the reference does.
#[test]
fn files_as_they_are_found_are_runs_or_lead_to_lenient() {
    let per_line = |change: fn(&str) -> String| -> String {
        REFERENCE.lines().map(|line| change(line) + "\n").collect()
    };
    let first_lines = |count: usize| -> String {
        REFERENCE.lines().take(count).map(|line| format!("{line}\n")).collect()
    };
    let runs = [
        ("tabs before the comments", REFERENCE.replace("  ", "\t\t")),
        ("tabs between the values", with_line(6, "29\t30\t34\t35\tNs")),
        ("lines of Windows", per_line(|line| format!("{line}\r"))),
        ("blanks at both ends", per_line(|line| format!("   {line}   "))),
        ("no comments", per_line(|line| line.split("  ").next().unwrap_or(line).to_owned())),
        ("comments of another mark", REFERENCE.replace("  Ns", "  # orders; 1 2 3")),
        (
            "comment right after a comma",
            with_line(27, "64, swapping threshold").replace("64,", "64"),
        ),
        ("surplus values", with_line(15, "0 1 2 1 1 0  PFACTs")),
        ("a list for what takes one value", with_line(26, "2 1 0  SWAP")),
        ("a threshold without a point", with_line(13, "16  threshold")),
        ("a threshold with an exponent", with_line(13, "1.6e1  threshold")),
        ("a negative threshold", with_line(13, "-16.0  threshold")),
        ("values with a sign", with_line(25, "+0  DEPTHs")),
        ("zeros in front", with_line(8, "001 02 003 0004  NBs")),
        ("no line end at the end", REFERENCE.trim_end().to_owned()),
        ("empty lines at the end", format!("{REFERENCE}\n\n\n")),
        ("without the alignment", first_lines(30)),
        ("without the moot lines", first_lines(27)),
        ("an empty last line in place of the alignment", first_lines(30) + "\n"),
        (
            "empty titles",
            REFERENCE.lines().skip(2).fold("\n\n".into(), |all: String, line| all + line + "\n"),
        ),
        (
            "HPCC's, with its further lines",
            format!(
                "{REFERENCE}##### This line (no. 32) is ignored (it serves as a separator). ######\n\
             0                               Number of additional problem sizes for PTRANS\n\
             1200 10000 30000                values of N\n\
             0                               number of additional blocking sizes for PTRANS\n\
             40 9 8 13 13 20 16 32 64        values of NB\n"
            ),
        ),
        ("a shell's leavings at the end", format!("{REFERENCE}EOF\n")),
    ];
    for (shape, text) in runs {
        assert!(dat(&text).is_ok(), "{shape}: {}", message(dat(&text)));
    }
    let mistakes = [
        ("a broadcast beyond the last", with_line(23, "99           BCASTs")),
        ("several broadcasts, one illegal", with_line(23, "99 1         BCASTs")),
        ("a word for the device", with_line(4, "file         device out")),
        ("a swap beyond the last", with_line(26, "3            SWAP")),
        ("a mapping beyond the last", with_line(9, "2            PMAP")),
        ("a panel factorization beyond the last", with_line(15, "0 1 3        PFACTs")),
        ("L1 of 2", with_line(28, "2            L1")),
        ("an alignment of 0", with_line(31, "0            memory alignment")),
        ("a comma after a value", with_line(27, "64,          swapping threshold")),
        ("an order as 1e3", with_line(6, "1e3 30 34 35 Ns")),
        ("values with commas", with_line(6, "29, 30, 34, 35  Ns")),
        ("a block size as a float", with_line(8, "1.0 2 3 4    NBs")),
        ("a list shorter than its count", with_line(6, "29 30        Ns")),
        ("a number beyond an int", with_line(29, "2147483648   U")),
    ];
    for (shape, text) in mistakes {
        let printed = message(dat(&text));
        assert!(printed.contains("; --lenient takes "), "{shape}: {printed}");
        assert!(lenient(&text).is_ok(), "{shape}: {}", message(lenient(&text)));
    }
}

#[test]
fn an_output_file_needs_a_name() {
    let mut text = with_line(4, "8");
    assert_eq!(dat(&text).unwrap().spec.output, Output::File("HPL.out".into()));
    text = text.replace("HPL.out      output file name (if any)", "");
    assert_eq!(
        message(dat(&text)),
        "HPL.dat:3: output file name: the report goes to a file, but no file name is given"
    );
    assert!(dat(&text.replace("\n8\n", "\n6\n")).is_ok(), "moot for stdout");
}

#[test]
fn utf16_is_named() {
    let bytes: Vec<u8> = [0xfeffu16]
        .into_iter()
        .chain(REFERENCE.encode_utf16())
        .flat_map(u16::to_le_bytes)
        .collect();
    let error = parse(&bytes, "HPL.dat", Format::Dat, false).unwrap_err();
    assert!(error.to_string().contains("UTF-16"), "{error}");
}

#[test]
fn surplus_numbers_are_ignored_with_a_warning() {
    let checked = dat(&with_line(5, "1")).unwrap();
    assert_eq!(checked.spec.n, [29]);
    let warnings: Vec<_> = checked.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(warnings, ["HPL.dat:6: Ns: 1 of 4 values used, as given in line 5"]);
    let cases = [
        (5, "4 29 30", "# of problem sizes (N): 1 of 3 values used, the values of the list are in"),
        (9, "0 1 PMAP", "PMAP: 1 of 2 values used, it takes one"),
        (13, "16.0 1.5 threshold", "threshold: 1 of 2 values used, it takes one"),
        (26, "2 1 0  SWAP", "SWAP: 1 of 3 values used, it takes one"),
        (31, "8 16", "memory alignment: 1 of 2 values used, it takes one"),
    ];
    for (line, text, want) in cases {
        let warnings = reported(&with_line(line, text));
        assert!(warnings.starts_with(&format!("HPL.dat:{line}: {want}")), "{warnings}");
    }
}

#[test]
fn lenient_substitutes_as_the_reference_does_with_a_warning() {
    let value = |line, text| lenient(&with_line(line, text)).unwrap();
    assert_eq!(value(9, "7").spec.pmap, Pmap::RowMajor);
    assert_eq!(value(15, "0 1 9").spec.pfact, [Fact::Left, Fact::Crout, Fact::Right]);
    assert_eq!(value(21, "9 1 -2").spec.rfact, [Fact::Right, Fact::Crout, Fact::Right]);
    assert_eq!(value(23, "99").spec.bcast, [Bcast::OneRingM]);
    assert_eq!(value(23, "abc").spec.bcast, [Bcast::OneRing], "atoi makes 0 of it");
    assert_eq!(value(26, "3").spec.swap, Swap::SpreadRoll);
    assert_eq!(value(27, "-5").spec.swap_threshold, 0);
    assert_eq!(value(28, "2").spec.l1, Form::Transposed);
    assert_eq!(value(29, "-1").spec.u, Form::Transposed);
    assert!(value(30, "2").spec.equilibration);
    assert_eq!(value(31, "0").spec.align_doubles, 4);
    assert_eq!(value(31, "16k").spec.align_doubles, 16);
    assert_eq!(value(13, "12.5x").spec.threshold, 12.5);
    assert_eq!(value(13, "none").spec.threshold, 0.0);
    assert_eq!(value(13, "0x10").spec.threshold, 16.0);
    assert_eq!(value(13, "-0X1.8p4x").spec.threshold, -24.0);
    assert_eq!(value(13, "inf").spec.threshold, f64::MAX);
    assert_eq!(value(23, "99999999999").spec.bcast, [Bcast::OneRingM]);
    assert_eq!(value(27, "4294967298").spec.swap_threshold, 2, "the last 32 bits");
    assert_eq!(value(29, "2147483648").spec.u, Form::Transposed);
    assert_eq!(value(31, "2147483648").spec.align_doubles, 4);
    assert_eq!(value(6, "1e3 30 34 35").spec.n, [1, 30, 34, 35]);
    assert_eq!(value(5, "4x").spec.n, [29, 30, 34, 35]);
    assert_eq!(value(4, "file").spec.output, Output::File("HPL.out".into()));
    let legal = broadcasts();
    assert_eq!(
        value(23, "99").warnings[0].to_string(),
        format!(
            "HPL.dat:23: BCASTs: `99` is not legal ({legal}); 1 (1ringM) is used, as the reference \
             does"
        )
    );
}

/// What HPL 2.3 prints for the same files.
#[test]
fn lenient_reads_lists_and_missing_lines_as_the_reference_does() {
    let read = |text: &str| lenient(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    for (line, want) in [
        ("29 30 34 Ns", vec![29, 30, 34, 0]),
        ("200          Ns", vec![200, 0, 0, 0]),
        ("29,30,34,35  Ns", vec![29, 0, 0, 0]),
        ("29 nan  5 6 Ns", vec![29, 0, 5, 6]),
        ("  29 30 34 35", vec![29, 9, 30, 34]),
        ("29 30", vec![29, 30, 30, 0]),
    ] {
        let checked = read(&with_line(6, line));
        assert_eq!(checked.spec.n, want, "{line}");
        assert!(checked.warnings[0].to_string().starts_with("HPL.dat:6: Ns: "), "{line}");
    }
    let warnings = read(&with_line(6, "200          Ns")).warnings;
    let warnings: Vec<String> = warnings.iter().map(ToString::to_string).collect();
    assert!(warnings[0].contains("read as `200 Ns Ns Ns`, as the reference does"), "{warnings:?}");
    assert!(warnings[1].starts_with("HPL.dat:6: Ns: `Ns` is not legal"), "{warnings:?}");
    // Of a count, too, the last 32 bits are read.
    for count in ["4294967298  Ns", "-4294967294  Ns"] {
        let checked = read(&with_line(5, count));
        assert_eq!(checked.spec.n, [29, 30], "{count}");
        assert!(checked.warnings[0].to_string().contains("is read as 2, as the ref"), "{count}");
    }
    assert!(lenient(&with_line(5, "4294967317  Ns")).is_err(), "21 values");
    // A line without a value has that of the line before.
    assert_eq!(read(&with_line(13, "")).spec.threshold, 1.0);
    assert_eq!(read(&with_line(20, "\t")).spec.rfact, vec![Fact::Left, Fact::Crout]);
    // So have lines after the last.
    let first = |count: usize| REFERENCE.lines().take(count).map(|line| format!("{line}\n"));
    let short = read(&first(20).collect::<String>()).spec;
    assert_eq!(short.rfact, [Fact::Right, Fact::Left, Fact::Left], "`3 # of recursive`");
    assert_eq!((short.bcast.len(), short.swap, short.align_doubles), (3, Swap::SpreadRoll, 3));
    let why = message(lenient(&first(10).collect::<String>()));
    assert!(why.starts_with("HPL.dat:11: Ps: the file ends after line 10 of 31, and"), "{why}");
}

#[test]
fn lenient_still_refuses_what_the_reference_refuses() {
    let cases = [
        (5, "0"),
        (6, "-1 2 3 4"),
        (8, "0 1 2 3"),
        (8, "x 1 2 3"),
        (11, "0 1 4"),
        (17, "0 1"),
        (19, "1"),
        (25, "-1"),
        (6, "1 2 3 -99999999999"),
        (8, "29 30"),
        (13, "nan"),
        (7, ""),
    ];
    for (line, text) in cases {
        assert!(lenient(&with_line(line, text)).is_err(), "line {line}: {text}");
    }
    let why = message(lenient(&with_line(8, "x 1 2 3")));
    assert!(why.starts_with("HPL.dat:8: NBs: `x` is not a whole number; legal: "), "{why}");
}

#[test]
fn toml_takes_scalars_lists_names_and_codes() {
    let text = "title = \"one\"\noutput = \"a b.txt\"\nn = 100\nnb = [1, 2]\np = [1, 2]\nq = [4, 2]\n\
                pmap = \"Column-Major\"\nthreshold = 8\npfact = [\"left\", 2]\nbcast = [\"1ringM\", \"Blong\"]\n\
                swap = 0\nequilibration = false\nl1 = \"no-transposed\"\ngenerator = \"xoshiro\"\nthreads = 3\n";
    let spec = toml_text(text).unwrap().spec;
    assert_eq!(spec.title, ["one", ""]);
    assert_eq!(spec.output, Output::File("a b.txt".into()));
    assert_eq!((spec.n, spec.nb), (vec![100], vec![1, 2]));
    assert_eq!(spec.grids, [(1, 4), (2, 2)]);
    assert_eq!((spec.pmap, spec.threshold), (Pmap::ColumnMajor, 8.0));
    assert_eq!(spec.pfact, [Fact::Left, Fact::Right]);
    assert_eq!(spec.bcast, [Bcast::OneRingM, Bcast::Long]);
    assert_eq!(spec.swap, Swap::BinaryExchange);
    assert!(!spec.equilibration);
    assert_eq!((spec.l1, spec.u), (Form::NoTransposed, Form::Transposed));
    assert_eq!((spec.generator, spec.threads), (Generator::Xoshiro, 3));
    assert_eq!((spec.nbmin, spec.depth), (vec![4], vec![1]), "defaults");
}

#[test]
fn bad_toml_is_named_with_its_line() {
    for case in BAD_TOML.lines() {
        let [text, want] = split_case(case);
        let want = want.replace("{parameters}", &keys(param::in_dat_order().into_iter()));
        let want = want.replace("{settings}", &keys(checkpoint::SETTINGS.iter()));
        let reported = message(toml_text(&text.replace("; ", "\n")));
        assert_eq!(reported, format!("hpl.toml:{want}"), "{case}");
    }
    for (text, line) in [("n = 1\nn = 2", 2), ("n = 1\n\n= 3", 3), ("n = [1", 1)] {
        let message = message(toml_text(text));
        assert!(message.starts_with(&format!("hpl.toml:{line}: ")), "{message}");
    }
    let error = parse(b"n = 1\n# \xff", "hpl.toml", Format::Toml, false).unwrap_err();
    assert_eq!(error.to_string(), "hpl.toml: line 2 is not UTF-8, which TOML must be");
    let many = format!("n = [{}]\np = 1\nq = 1", vec!["1"; 21].join(","));
    assert_eq!(message(toml_text(&many)), "hpl.toml:1: n: 21 values; legal: 1 to 20");
}

fn keys<S: Table>(rows: impl Iterator<Item = &'static Row<S>>) -> String {
    rows.map(|row| row.key).collect::<Vec<_>>().join(", ")
}

/// Texts of TOML, with `; ` between their lines, and the message after the name of the file, with
/// `{parameters}` and `{settings}` for their keys.
const BAD_TOML: &str = r#"n = 1; p = 1; q = 1; bcats = 1 | 4: bcats: no such key; did you mean `bcast`?
n = 1; swap-treshold = 1 | 2: swap-treshold: no such key; did you mean `swap_threshold`?
wallpaper = 1 | 1: wallpaper: no such key; the keys are title, output, checkpoint, launch, {parameters}
[checkpoint]; a = 1 | 2: checkpoint.a: no such key; the keys are {settings}
[checkpoint]; hosts = 'a' | 2: checkpoint.hosts: no such key; it belongs in the table [launch]
[checkpont]; a = 1 | 1: checkpont: no such key; did you mean `checkpoint`?
p = 1; q = 1 |  `n` is missing; legal: 0 to 4294967295
n = 1; q = 1 |  `p` is missing; legal: 1 or more
n = []; p = 1; q = 1 | 1: n: no value is given; legal: 0 to 4294967295
n = 1; p = 1; q = 1; nb = [8, 0] | 4: nb: value 0 is out of range; legal: 1 or more
n = 1; p = 1; q = 1; nb = [8,;  0] | 5: nb: value 0 is out of range; legal: 1 or more
n = 99999999999999999999999999999999999999999; p = 1; q = 1 | 1: n: value 9999999999999999999999999999999999999999... is out of range; legal: 0 to 4294967295
n = 1.5; p = 1; q = 1 | 1: n: `1.5` is not a whole number; legal: 0 to 4294967295
n = "1"; p = 1; q = 1 | 1: n: `1` is not a whole number; legal: 0 to 4294967295
n = 1; p = [1, 2]; q = 1 | 2: p has 2 values and hpl.toml:3: q has 1; they pair up, one Q for each P
n = 1; p = 1; q = 1; swap = [0, 1] | 4: swap: 2 values where one belongs
n = 1; p = 1; q = 1; pfact = "up" | 4: pfact: `up` is not one of the choices; legal: left (0), crout (1), right (2)
n = 1; p = 1; q = 1; threshold = nan | 4: threshold: value nan is out of range; legal: a finite number, e.g. 16.0
n = 1; p = 1; q = 1; threads = 0 | 4: threads: value 0 is out of range; legal: 1 to 4096
n = { a = 1 } | 1: n: `this table` is not a value or a list of values; legal: 0 to 4294967295
title = "a\nb" | 1: title: must be one or two strings, each of one line
title = [] | 1: title: must be one or two strings, each of one line
output = 6 | 1: output: must be "stdout", "stderr" or the name of a file
output = "" | 1: output: the report goes to a file, but no file name is given"#;

#[test]
fn a_grid_larger_than_the_job_is_named_with_its_line() {
    let checked = dat(REFERENCE).unwrap();
    assert!(checked.require_ranks(4).is_ok());
    assert_eq!(
        checked.require_ranks(3).unwrap_err().to_string(),
        "HPL.dat:11: Ps: the 2 x 2 grid needs 4 ranks, this job has 3: \
         start it on 4"
    );
}

#[test]
fn lists_of_too_many_tests_are_refused_before_they_are_listed() {
    let list = |value: &str| format!("[{}]", vec![value; 20].join(", "));
    let lists: Vec<String> = ["n", "nb", "nbmin", "depth", "bcast", "pfact", "rfact"]
        .iter()
        .map(|key| format!("{key} = {}\n", list("1")))
        .collect();
    let text = |lists: &[String]| format!("p = 1\nq = 1\n{}", lists.concat());
    let made = |count| toml_text(&text(&lists[..count]));
    assert_eq!(made(3).unwrap().spec.test_count(), 8000);
    assert_eq!(made(3).unwrap().spec.tests().len(), 8000);
    assert_eq!(
        made(7).unwrap_err().to_string(),
        "hpl.toml: the lists make 1280000000 tests, each value of one with each of all others; \
         legal: at most 100000"
    );
}

/// A file of the largest size with a list that is far too long.
#[test]
fn the_lines_of_many_values_are_found_at_once() {
    let text = format!("n = [{}]\nnb = 8\np = 1\nq = 1\n", "1,\n".repeat(340_000));
    let begun = thread_cpu_seconds();
    let error = toml_text(&text).unwrap_err().to_string();
    assert_eq!(error, "hpl.toml:1: n: 340000 values; legal: 1 to 20");
    // It takes about 0.3 s; a search from the start of the file for each value took minutes.
    let took = thread_cpu_seconds() - begun;
    assert!(took < 20.0, "{took} s");
}

/// Any legal run of HPL: the values of each parameter are legal by its row.
fn any_spec() -> impl Strategy<Value = RunSpec> {
    fn any_text(row: &Row<Param>) -> BoxedStrategy<String> {
        match (row.written, row.range) {
            _ if !row.choices.is_empty() => {
                prop::sample::select(row.names()).prop_map(str::to_owned).boxed()
            }
            (Written::Whole, Some(range)) => (range.least as usize..=range.most as usize)
                .prop_map(|number| number.to_string())
                .boxed(),
            (Written::Real, None) => any::<f64>()
                .prop_map(|number| format!("{:?}", if number.is_finite() { number } else { -1.0 }))
                .boxed(),
            // A list fits one Q, and a file has to be there.
            (Written::Text, None) if row.setting == Param::Rates => Just("auto".into()).boxed(),
            (Written::Text, None) => "[!-~]{1,20}".boxed(),
            _ => panic!("{}: any value of it", row.key),
        }
    }
    let any_texts = |(row, _): &(&Row<Param>, _)| {
        let fewest = usize::from(row.default.is_empty() || row.has_default_value());
        prop::collection::vec(any_text(row), fewest..=if row.is_list { 3 } else { 1 })
    };
    let output = prop_oneof![
        Just(Output::Stdout),
        Just(Output::Stderr),
        "[!-~]{1,20}|stdout|stderr|é".prop_map(|name| Output::file(&name).unwrap()),
    ];
    let title = || any::<String>().prop_map(|text| clean_title(&text));
    let grids = prop::collection::vec((1usize..40000, 1usize..40000), 1..=3);
    let of_hpl = PARAMS.iter().filter(|row| !row.setting.is_of_mxp());
    let rows: Vec<_> = of_hpl.filter_map(|row| Some((row, row.field?))).collect();
    let texts: Vec<_> = rows.iter().map(any_texts).collect();
    ([title(), title()], output, grids, texts).prop_map(move |(title, output, grids, texts)| {
        let mut spec = RunSpec { title, output, grids, ..RunSpec::default() };
        for ((_, field), texts) in rows.iter().zip(texts) {
            field(&mut spec).set(&texts).unwrap();
        }
        spec
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_run_survives_toml_hpldat_and_the_wire(spec in any_spec()) {
        let sent = serde_json::to_vec(&spec).unwrap();
        prop_assert_eq!(&serde_json::from_slice::<RunSpec>(&sent).unwrap(), &spec);
        let toml = toml::write(&spec);
        let checked = toml_text(&toml).unwrap();
        prop_assert_eq!(&checked.spec, &spec, "{}", toml);
        let unused: Vec<String> = checked.warnings.into_iter().map(|w| w.what).collect();
        let text = hpldat::write(&spec).unwrap();
        let mut sayable = spec.clone();
        let of_hpl = PARAMS.iter().filter(|row| !row.setting.is_of_mxp());
        for row in of_hpl.filter(|row| row.dat.is_none()) {
            row.field.unwrap()(&mut sayable).set(&row.default_texts()).unwrap();
        }
        prop_assert_eq!(hpldat::flags_besides(&spec).is_empty(), spec == sayable);
        let checked = dat(&text).unwrap();
        prop_assert_eq!(&checked.spec, &sayable, "{}", text);
        // Nothing is substituted, and values without a use are the same.
        let warned: Vec<String> = checked.warnings.into_iter().map(|w| w.what).collect();
        prop_assert_eq!(warned, unused);
        let again = toml_text(&toml::write(&checked.spec)).unwrap();
        prop_assert_eq!(hpldat::write(&again.spec).unwrap(), text);
    }

    #[test]
    fn every_run_of_hpl_mxp_survives_toml_and_the_wire(
        spec in any_spec(), matrix in prop::sample::select(MxpMatrix::ALL.to_vec()),
        gemm in prop::sample::select(GemmPrecision::ALL.to_vec()), is_checked in any::<bool>(),
    ) {
        let generator = Generator::Hpl;
        let threshold = if is_checked { 16.0 } else { -1.0 };
        let of_panels = spec.pfact.len() * spec.rfact.len() * spec.nbmin.len() * spec.ndiv.len();
        let tests = spec.test_count() / of_panels as u64;
        let mut mxp = RunSpec { mxp: Some(matrix), gemm, threshold, generator, ..spec };
        let toml = toml::write(&mxp);
        let checked = toml_text(&toml).unwrap();
        mxp.pfact.truncate(1);
        mxp.rfact.truncate(1);
        mxp.nbmin.truncate(1);
        mxp.ndiv.truncate(1);
        prop_assert_eq!(&checked.spec, &mxp, "{}", toml);
        prop_assert_eq!(checked.spec.test_count(), tests);
        let is_warned = checked.warnings.iter().any(|w| w.what.contains("make no further tests"));
        prop_assert_eq!(is_warned, of_panels > 1);
        let flags = hpldat::flags_besides(&mxp);
        let is_default = matrix == MxpMatrix::FasiHigham;
        prop_assert_eq!(flags.contains(&format!("--matrix {matrix}")), !is_default, "{:?}", flags);
        let flag = format!("--gemm {gemm}");
        prop_assert_eq!(flags.contains(&flag), gemm.is_rounded(), "{:?}", flags);
        let sent = serde_json::to_vec(&mxp).unwrap();
        prop_assert_eq!(&serde_json::from_slice::<RunSpec>(&sent).unwrap(), &mxp);
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        for lenient in [false, true] {
            for format in [Format::Dat, Format::Toml] {
                let _ = parse(&bytes, "f", format, lenient).map_err(|e| e.to_string());
            }
        }
    }

    #[test]
    fn mutated_files_never_panic(
        base in prop::sample::select(vec![REFERENCE, TOML]),
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0usize..4, "\\PC{0,12}|[-+0-9.eE]{1,25}"), 1..6),
    ) {
        let mut bytes = base.as_bytes().to_vec();
        for (index, cut, text) in edits {
            let at = index.index(bytes.len() + 1);
            let end = (at + cut).min(bytes.len());
            bytes.splice(at..end, text.bytes());
        }
        for lenient in [false, true] {
            for format in [Format::Dat, Format::Toml] {
                if let Ok(checked) = parse(&bytes, "f", format, lenient) {
                    // What is accepted must be a legal run, so its own text must be accepted, too.
                    let again = toml_text(&toml::write(&checked.spec)).unwrap();
                    prop_assert_eq!(again.spec, checked.spec);
                }
            }
        }
    }

    #[test]
    fn toml_of_any_shape_never_panics(
        key in prop::sample::select(vec!["n", "p", "title", "output", "threshold", "bcast", "x.y", "[n]"]),
        value in "[-+0-9a-fxob._eTZ:\"'\\[\\]{}=, \n#]{0,40}|\\[{1,300}|\\PC{0,30}",
    ) {
        let text = format!("{TOML}{key} = {value}\n").replace("n = [29, 30]\n", "");
        let _ = toml_text(&text).map_err(|e| e.to_string());
    }
}

#[test]
fn large_input_ends_at_once() {
    let begun = thread_cpu_seconds();
    for unit in ["9", " ", "\n", "[", "9 ", "a=1\n", "\""] {
        let bytes = unit.repeat((1 << 20) / unit.len()).into_bytes();
        for format in [Format::Dat, Format::Toml] {
            assert!(parse(&bytes, "f", format, true).is_err(), "{unit:?}");
        }
        let line = with_line(6, &unit.replace('\n', "").repeat(200_000));
        let _ = lenient(&line).map_err(|e| assert!(e.to_string().len() < 400, "{e}"));
    }
    let took = thread_cpu_seconds() - begun;
    assert!(took < 10.0, "{took} s");
}

#[test]
fn the_manual_has_what_the_table_has() {
    let manual = include_str!("../../../docs/configuration.md");
    fn row<S: Table>(info: &Row<S>, flag: &str) -> String {
        let (legal, default) = (info.legal(), info.default_shown());
        format!("|`{}`|{flag}{legal}|{default}|{}{}|\n", info.key, info.help, info.more)
    }
    let params = param::in_dat_order().into_iter().map(|info| {
        let count = |dat: value::DatLine| dat.line - if info.setting == Param::Q { 2 } else { 1 };
        let lines = match info.dat {
            None => String::new(),
            Some(dat) if info.is_list => format!("{}, {}", count(dat), dat.line),
            Some(dat) => dat.line.to_string(),
        };
        let alias = match info.alias {
            "" => String::new(),
            alias => format!(" (also `--{alias}`)"),
        };
        let list = if info.is_list { "yes" } else { "" };
        let default = if info.default.is_empty() { "none" } else { info.default_shown() };
        let (key, legal, what, more) = (info.key, info.legal(), info.help, info.more);
        format!("|{lines}|`{key}`{alias}|{list}|{legal}|{default}|{what}{more}|\n")
    });
    let flag = |info: &value::Row<Setting>| format!("`{}`|", info.setting.flag());
    let settings = checkpoint::SETTINGS.iter().map(|info| row(info, &flag(info)));
    for table in [params.collect::<String>(), settings.collect()] {
        assert!(manual.contains(&table), "docs/configuration.md needs this table:\n{table}");
    }
    let start = manual.find("```toml\n").unwrap() + 8;
    let example = &manual[start..][..manual[start..].find("```").unwrap()];
    assert_eq!(toml_text(example).unwrap().spec, dat(REFERENCE).unwrap().spec);
}
