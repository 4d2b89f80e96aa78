//! Libraries that `--blas` names: those that do not serve are refused by what they do, on any rank,
//! and a run resumes with the library that it began with. `--blas auto` takes the fastest of those
//! that serve.

use std::path::Path;

use crate::mpi_job::Job;
use crate::mpirun::{Ended, mpi_program, mpirun, run};
use crate::planted_blas::{folder_with, planted};

/// A folder for what has passed that cannot be made.
const NO_CACHE: &str = "XDG_CACHE_HOME=/dev/null/none";

/// The error of a run with this library, which each rank checks.
fn refused(ranks: usize, library: &Path, variables: &[&str]) -> String {
    let library = library.to_str().unwrap();
    ended(ranks, &[&[NO_CACHE], variables].concat(), &["--blas", library]).expect(2).err
}

/// A run with these variables and flags.
fn ended(ranks: usize, variables: &[&str], flags: &[&str]) -> Ended {
    let mut job = mpirun(ranks);
    job.arg("env").args(variables).arg(env!("CARGO_BIN_EXE_skt-hpl"));
    job.args("--n 200 --nb 40 --ft none --progress off".split(' ')).args(flags);
    run(&mut job)
}

#[test]
fn a_library_that_does_not_serve_is_refused_by_what_it_does() {
    let library = planted("planted_blas_faults", "");
    for (ranks, fault, words) in [
        (1, "crashes when loaded", "it crashes (signal 4) while it is loaded"),
        (2, "hangs when loaded", "s were not enough while it is loaded"),
        (2, "crashes when called", "it crashes (signal 4) while dgemm is checked"),
        (1, "ends the process", "it ends the process (exit code 3) while dgemm is checked"),
        (1, "is wrong", "it is wrong: dgemm ("),
        (
            1,
            "is wrong in one shape",
            "it is wrong: dgemm (46 x 767, k = 40) computes wrong numbers",
        ),
        (1, "is wrong in panels", "it is wrong: dgemm (5 x 767, k = 20) computes wrong numbers"),
        (1, "multiplies with zero", "it is wrong: dgemm ("),
        (1, "uses all cores", "so it starts threads"),
        (1, "crashes when unloaded", "it crashes (signal 4) while it is unloaded"),
    ] {
        // Rank 0 announces its long waits; those of other ranks it finds in MPI_Init.
        let rank = usize::from(fault == "crashes when called");
        let variables = [format!("FAULT={fault}"), format!("FAULT_RANK={rank}")];
        let [fault_is, on_rank] = variables.each_ref().map(String::as_str);
        let variables = [fault_is, on_rank, "SKT_HPL_ANNOUNCE_MILLISECONDS=500"];
        let error = refused(ranks, &library, &variables);
        let at = format!("error: rank {rank} on ");
        assert!(error.contains(&at) && error.contains(words), "{fault}: {error}");
        let is_announced = error.contains(" s for the trial of the BLAS ");
        assert!(is_announced || fault != "hangs when loaded", "{fault}: {error}");
        assert!(error.contains("or --blas built-in"), "{fault}: {error}");
    }
}

/// Where a few rows or columns are left over that fill no kernel, as OpenBLAS 5997 on each
/// Raspberry Pi 4. The check has a table of all functions, sides and remainders.
#[test]
fn a_library_wrong_for_one_remainder_is_refused_however_it_came() {
    let library = planted("planted_blas_remainders", "");
    let preload = format!("LD_PRELOAD={}", library.display());
    let file = library.canonicalize().unwrap();
    for (wrong, words, is_preloaded) in [
        ("dgemm 0 6", "it is wrong: dgemm (6 x ", false),
        ("sgemm 2 10", "it is wrong: sgemm (", false),
        ("dtrsm 0 11", "it is wrong: dtrsm (order 11, ", true),
        ("dgemv 0 6", "it is wrong: dgemv (6 x ", false),
    ] {
        let variable = format!("WRONG={wrong}");
        let (error, words) = if is_preloaded {
            let ended = ended(1, &[NO_CACHE, &preload, &variable], &[]).expect(2);
            (ended.err, format!(": the BLAS {}: {words}", file.display()))
        } else {
            (refused(1, &library, &[&variable]), words.to_owned())
        };
        assert!(error.contains(&words) && error.contains("--blas built-in"), "{wrong}: {error}");
    }
    let error = ended(1, &[NO_CACHE, &preload, "FAULT=crashes when called"], &[]).expect(2).err;
    assert!(error.contains(" while dgemm is checked. Name another library"), "{error}");
}

#[test]
fn the_default_library_is_checked_once_for_its_contents() {
    let folder = tempfile::tempdir().unwrap();
    let trials = folder.path().join("trials");
    let count = || std::fs::read_to_string(&trials).unwrap_or_default().lines().count();
    let counted = format!("TRIALS={}", trials.display());
    let cache = format!("XDG_CACHE_HOME={}", folder.path().join("new").display());
    // No part of HPL, so that a run passes.
    const WRONG: &str = "WRONG=strsm 0 6";
    let code = |cache: &str, name: &str, variables: &[&str]| {
        let preload = format!("LD_PRELOAD={}", planted(name, "").display());
        let ended = ended(2, &[&[cache, &preload, &counted], variables].concat(), &[]);
        assert_eq!(ended.err.contains("it is wrong: strsm (order 6, "), ended.code != Some(0));
        ended.code
    };
    assert_eq!(code(&cache, "planted_blas_once", &[WRONG]), Some(2), "what fails is not kept");
    let refused = count();
    assert_eq!(code(&cache, "planted_blas_once", &[]), Some(0));
    assert_eq!(code(&cache, "planted_blas_once", &[WRONG]), Some(0), "it has passed");
    assert_eq!(count(), refused + 1, "one of the ranks tries it for all");
    assert_eq!(code(&cache, "planted_blas_twice", &[WRONG]), Some(2), "it has other contents");
    assert_eq!(code(&cache, "planted_blas_once", &[WRONG, "BLIS_X=1"]), Some(2), "another kernel");
    assert_eq!(code(NO_CACHE, "planted_blas_once", &[]), Some(0));
}

/// The program has no subcommands under that name.
#[test]
fn a_copy_named_xhpl_tries_its_library() {
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("xhpl");
    std::fs::copy(env!("CARGO_BIN_EXE_skt-hpl"), &copy).unwrap();
    let mut job = mpirun(1);
    job.args(["env", NO_CACHE]).arg(copy).args("--n 200 --nb 40 --p 1 --q 1".split(' '));
    let ended = run(&mut job).expect(0);
    assert!(ended.out.contains("PASSED"), "{}{}", ended.out, ended.err);
}

#[test]
fn the_library_is_what_is_called_and_its_copy_is_the_same() {
    let library = planted("planted_blas_called", "");
    let folder =
        folder_with(&[("copied", &library), ("other", &planted("planted_blas_other", ""))]);
    let in_folder = |name: &str| folder.path().join(format!("lib{name}.so"));
    let json = folder.path().join("report.json");
    for (second, differs) in [("copied", false), ("other", true)] {
        let mut job = mpirun(1);
        let flags = "--n 200 --nb 40 --p 1 --q 2 --ft none --progress off --json";
        let rank = |library: &Path| {
            let preload = format!("LD_PRELOAD={}", library.display());
            let flags: Vec<String> = flags.split(' ').map(str::to_owned).collect();
            let program = env!("CARGO_BIN_EXE_skt-hpl").to_owned();
            let words = [vec!["env".to_owned(), preload, program], flags].concat();
            words.into_iter().chain([json.display().to_string()])
        };
        job.args(rank(&library)).args([":", "-np", "1"]).args(rank(&in_folder(second)));
        let text = run(&mut job).expect(0).out;
        let file = library.canonicalize().unwrap();
        let path = format!("# blas     : planted_blas_called.so, {}", file.display());
        assert!(text.contains(&path), "{text}");
        let warning = "the last bits of x depend on which rank computes what";
        assert_eq!(text.contains(warning), differs, "{text}");
    }
}

#[test]
fn reports_name_the_library_by_its_file_however_it_came() {
    let preloaded = planted("planted_blas_reported", "");
    let library = preloaded.canonicalize().unwrap();
    let folder = folder_with(&[("reported", &library)]);
    let copy = folder.path().canonicalize().unwrap().join("libreported.so");
    let (by_file, in_folder) = (library.to_str().unwrap(), copy.to_str().unwrap());
    let path = format!("LD_LIBRARY_PATH={}", folder.path().display());
    // The loader takes no path with a blank there.
    let preload = format!("LD_PRELOAD={}", preloaded.display());
    let variable = format!("SKT_HPL_BLAS={by_file}");
    let default = skt_solver::blas::library::loaded().path.expect("a library of the system");
    let json = folder.path().join("report.json");
    for (variables, flags, file) in [
        (&[][..], &[][..], &*default),
        (&[&*path], &["--blas", "reported"], &*copy),
        (&[&variable], &[], &*library),
        (&[&variable], &["--blas", in_folder], &*copy),
        (&[&preload], &[], &*library),
    ] {
        let flags = [flags, &["--json", json.to_str().unwrap()]].concat();
        let text = ended(1, variables, &flags).expect(0).out;
        let line = text.lines().find(|line| line.starts_with("# blas ")).expect("the line");
        assert!(line.ends_with(&format!(", {}", file.display())), "{variables:?}: {line}");
        let report: serde_json::Value =
            serde_json::from_slice(&std::fs::read(&json).unwrap()).expect("a report");
        assert_eq!(report["environment"]["blas"]["path"], *file.to_str().unwrap());
        let mut sheet = mpi_program(env!("CARGO_BIN_EXE_skt-hpl"));
        let sheet = run(sheet.args(["report", "--top500"]).arg(&json)).expect(0).out;
        let field = sheet.lines().find(|line| line.starts_with("Math library")).expect("the field");
        assert!(field.contains(file.to_str().unwrap()), "{field}");
    }
}

/// As the unoptimized reference is, which has no text about itself.
#[test]
fn a_library_slower_than_the_built_in_one_is_passed_over() {
    let (slow, fast) = ("#define SLOW", "#define FAST");
    for (name, first_line, is_taken) in
        [("planted_default_slow", slow, false), ("planted_default_fast", fast, true)]
    {
        let folder = folder_with(&[("openblas", &planted(name, first_line))]);
        let trials = folder.path().join("trials");
        let count = || std::fs::read_to_string(&trials).unwrap_or_default().lines().count();
        let path = format!("LD_LIBRARY_PATH={}", folder.path().display());
        let cache = format!("XDG_CACHE_HOME={}", folder.path().display());
        let counted = format!("TRIALS={}", trials.display());
        let start = || ended(1, &[&path, &cache, &counted], &[]).expect(0).out;
        let text = start();
        assert_eq!(text.contains("libopenblas.so, "), is_taken, "{text}");
        let measured = count();
        assert!(measured > 0, "it is measured");
        start();
        assert_eq!(count(), measured, "once for its contents");
    }
}

#[test]
fn a_library_with_another_interface_is_refused() {
    let lacks = planted("planted_blas_lacks", "#define LACKS");
    assert!(refused(1, &lacks, &[]).contains("it has no function dtrsv_"));
    let long = planted("planted_blas_long", "#define LONG");
    assert!(refused(1, &long, &[]).contains("its integers have 64 bits"));
    let error = refused(1, Path::new("no_such_library"), &[]);
    assert!(error.contains("the loader refuses it: libno_such_library.so"), "{error}");
    let folder = folder_with(&[("planted", &planted("planted_blas_preloaded", ""))]);
    let path = format!("LD_LIBRARY_PATH={}", folder.path().display());
    let error = refused(1, Path::new("any"), &[&path, "LD_PRELOAD=libplanted.so"]);
    assert!(error.contains("is preloaded in place of dgemm_"), "{error}");
}

/// What a run of two ranks with `--blas auto` prints, and the choice in its JSON report.
fn auto_in(folder: &Path, variables: &[&str]) -> (String, serde_json::Value) {
    auto_of("run", folder, variables)
}

/// As [`auto_in`], for this subcommand.
fn auto_of(command: &str, folder: &Path, variables: &[&str]) -> (String, serde_json::Value) {
    let json = folder.join("report.json");
    let mut job = mpirun(2);
    job.arg("env").arg(format!("LD_LIBRARY_PATH={}", folder.display())).args(variables);
    job.args([env!("CARGO_BIN_EXE_skt-hpl"), command]);
    job.args("--n 200 --nb 40 --ft none --progress off --blas auto --json".split(' ')).arg(&json);
    let ended = run(&mut job).expect(0);
    let report: serde_json::Value =
        serde_json::from_slice(&std::fs::read(json).unwrap()).expect("a report");
    (ended.err + &ended.out, report["environment"]["blas_choice"].clone())
}

#[test]
fn auto_takes_the_fastest_library_that_serves() {
    let fast = planted("planted_auto_fast", "#define FAST\n#define MEDDLING");
    let slow = planted("planted_auto_slow", "#define SLOW");
    let wrong = planted("planted_auto_wrong", "#define FAULT_IS \"is wrong\"");
    let crashes = planted("planted_auto_crashes", "#define FAULT_IS \"crashes when called\"");
    let hangs = planted("planted_auto_hangs", "#define FAULT_IS \"hangs when timed\"");
    let folder = folder_with(&[
        ("blis", &slow),
        ("blis-mt", &fast),
        ("armpl_lp64", &hangs),
        ("flexiblas", &crashes),
        ("mkl_rt", &wrong),
        // The same file by another name is no other library.
        ("nvpl_blas_lp64_seq", &fast),
    ]);
    let same = folder.path().join("libnvpl_blas_lp64_seq.so");
    std::fs::remove_file(&same).unwrap();
    std::os::unix::fs::symlink(folder.path().join("libblis-mt.so"), &same).unwrap();
    let (text, choice) = auto_in(folder.path(), &[]);
    assert!(text.contains("blas: auto takes blis-mt: "), "{text}");
    let default = skt_solver::blas::library::name();
    let why = format!("% faster than {default} (Gflop/s a core: {default} ");
    assert!(text.contains(&why), "{text}");
    assert_eq!(choice["library"], "blis-mt");
    let tried = choice["tried"].as_array().unwrap();
    let names: Vec<_> = tried.iter().map(|it| it["name"].as_str().unwrap()).collect();
    // The first ones are those of the system.
    let want = ["blis-mt", "blis", "mkl_rt", "armpl_lp64", "flexiblas", "built-in"];
    assert!(names[0] == default && names.ends_with(&want), "{text}");
    let rate = |name: &str| {
        let at = names.iter().position(|it| *it == name).expect(name);
        tried[at]["gflops_per_core"].as_f64().expect(name)
    };
    assert!(rate("blis") < rate(default) && rate(default) < rate("blis-mt"), "{choice}");
    for (name, why) in [
        ("mkl_rt", "it is wrong: dgemm"),
        ("armpl_lp64", "s were not enough while its rate is measured"),
        ("flexiblas", "it crashes (signal 4) while dgemm is checked"),
    ] {
        let line = text.lines().find(|line| line.contains(&format!("# blas auto: not {name}: ")));
        assert!(line.is_some_and(|line| line.contains(why)), "{text}");
    }
}

#[test]
fn auto_takes_the_fastest_in_the_precision_of_the_run() {
    let double = planted("planted_auto_double", "#define FAST");
    let single = planted("planted_auto_single", "#define FAST_SINGLE");
    let folder = folder_with(&[("blis", &double), ("blis-mt", &single)]);
    for (command, fastest) in [("run", "blis"), ("mxp", "blis-mt")] {
        let (text, choice) = auto_of(command, folder.path(), &[]);
        assert_eq!(choice["library"], fastest, "{command}: {text}");
    }
}

#[test]
fn auto_takes_only_what_serves_on_all_ranks() {
    let fast = planted("planted_auto_on_one", "#define FAST");
    let folder = folder_with(&[("blis", &fast)]);
    for fault in ["crashes when called", "crashes when timed"] {
        let fault = format!("FAULT={fault}");
        let (text, choice) = auto_in(folder.path(), &[&fault, "FAULT_RANK=1"]);
        assert_ne!(choice["library"], "blis", "{text}");
        assert!(text.contains("# blas auto: not blis: rank 1 on "), "{text}");
        assert!(text.contains(": it crashes (signal 4) while "), "{text}");
    }
    let preloaded = planted("planted_auto_preloaded", "");
    let preload = format!("LD_PRELOAD={}", preloaded.display());
    let (text, choice) = auto_in(folder.path(), &[&preload]);
    let file = preloaded.canonicalize().unwrap().display().to_string();
    assert_eq!(choice["library"], *file, "{text}");
    assert!(text.contains("is preloaded in place of dgemm_"), "{text}");
}

#[test]
fn a_restart_with_auto_takes_the_library_of_the_first_start() {
    let library = planted("planted_auto_restarted", "#define FAST");
    let (folder, images) = (folder_with(&[("blis", &library)]), tempfile::tempdir().unwrap());
    let at = |name: &str| folder.path().join(name);
    let flags = "--n 250 --nb 16 --p 1 --q 2 --checkpoint-every 2p! --progress off --ft self";
    let level = format!("{flags} --level global:{},every=1ms!", images.path().display());
    let job = |name: &str, flags: &str| {
        let variable = format!("LD_LIBRARY_PATH={}", folder.path().display());
        Job::new(Path::new(env!("CARGO_BIN_EXE_skt-hpl")), 2, name, flags)
            .within(&["env", &variable])
    };
    let whole = job("auto-whole", flags).start(&["--blas", "auto"]);
    assert!(whole.ok && whole.text.contains("blas: auto takes blis: "), "{}", whole.text);
    for (name, flags, is_lost) in [("auto-kept", flags, false), ("auto-lost", &level, true)] {
        let job = job(name, flags);
        let ended = job.start(&["--blas", "auto", "--inject", "1@encode:epoch=4"]);
        assert!(!ended.ok && ended.text.contains("signal 9"), "{}", ended.text);
        if is_lost {
            (0..2).for_each(|rank| assert!(job.lose(rank) > 0));
            job.lose_results();
        }
        std::fs::rename(at("libblis.so"), at("elsewhere.so")).unwrap();
        let ended = job.start(&["--blas", "auto"]);
        let refused = "this run was computed with the BLAS libblis.so (libblis.so, ";
        assert!(!ended.ok && ended.text.contains(refused), "{}", ended.text);
        // The system may have a BLIS.
        let lacks = ["it is not found", "another library has this name"];
        let lacks = lacks.map(|why| ended.text.contains(&format!("{why} there. Install")));
        assert!(lacks.contains(&true), "{}", ended.text);
        std::fs::rename(at("elsewhere.so"), at("libblis.so")).unwrap();
        let ended = job.start(&[]);
        assert!(!ended.ok && ended.text.contains("add --blas blis, or continue"), "{}", ended.text);
        let ended = job.start(&["--blas", "auto"]);
        assert!(ended.ok && ended.text.contains("PASSED"), "{}", ended.text);
        let why = "blas: auto takes blis: an earlier start of this run has called it";
        assert!(ended.text.contains(why), "{}", ended.text);
        assert!(!ended.text.contains("last bits of x"), "{}", ended.text);
        assert_eq!(ended.x(), whole.x());
        job.assert_nothing_is_left();
    }
}

#[test]
fn ranks_with_different_libraries_are_refused() {
    let libraries = [planted("planted_blas_older", ""), planted("planted_blas_newer", "")];
    let folders = libraries.map(|library| {
        let folder = tempfile::tempdir().unwrap();
        std::fs::copy(library, folder.path().join("libplanted.so")).unwrap();
        folder
    });
    let mut job = mpirun(1);
    let paths = folders.each_ref().map(|it| format!("LD_LIBRARY_PATH={}", it.path().display()));
    let program = [env!("CARGO_BIN_EXE_skt-hpl")];
    let flags: Vec<_> = "--n 200 --ft none --progress off --blas planted".split(' ').collect();
    job.args(["env", &paths[0]]).args(program).args(&flags);
    job.args([":", "-np", "1", "env", &paths[1]]).args(program).args(&flags);
    let error = run(&mut job).expect(2).err;
    let words = "--blas planted is another library there than on ";
    assert!(error.contains("error: rank 1 on ") && error.contains(words), "{error}");
    assert!(error.contains("they differ in libplanted.so"), "{error}");
}

#[test]
fn a_run_resumes_with_the_library_that_it_began_with() {
    let library = planted("planted_blas_restarted", "");
    let folder = tempfile::tempdir().unwrap();
    // The path of the first may be that of an open file, which has another name.
    let other = folder.path().join("other\nfolder");
    std::fs::create_dir(&other).unwrap();
    let moved = other.join("planted_blas_restarted.so");
    std::fs::copy(&library, &moved).unwrap();
    let (library, moved) = (library.to_str().unwrap(), moved.to_str().unwrap());
    let flags = "--n 250 --nb 16 --p 1 --q 2 --checkpoint-every 2p! --progress off";
    for method in ["self", "abft"] {
        let grid = if method == "abft" { "--ft abft --p 1 --q 1" } else { "--ft self" };
        let flags = match method {
            "abft" => flags.replace("--p 1 --q 2 --checkpoint-every 2p!", grid),
            _ => format!("{flags} {grid}"),
        };
        let job = |name: &str| {
            let program = Path::new(env!("CARGO_BIN_EXE_skt-hpl"));
            Job::new(program, 2, &format!("blas-{method}-{name}"), &flags)
        };
        let undisturbed = job("whole").start(&["--blas", library]);
        assert!(undisturbed.ok, "{}", undisturbed.text);
        assert!(undisturbed.text.contains("planted_blas_restarted.so"), "{}", undisturbed.text);
        let killed = job("killed");
        let inject = if method == "abft" { "1@column:160" } else { "1@encode:epoch=3" };
        let ended = killed.start(&["--blas", library, "--inject", inject]);
        assert!(!ended.ok && ended.text.contains("signal 9"), "{}", ended.text);
        let ended = killed.start(&[]);
        assert!(!ended.ok, "{}", ended.text);
        let refused = format!("add --blas {library}, or continue with other last bits of x");
        assert!(ended.text.contains(&refused), "{}", ended.text);
        let ended = killed.start(&["--blas", moved]);
        assert!(ended.ok && ended.text.contains("PASSED"), "{}", ended.text);
        assert!(!ended.text.contains("last bits of x"), "{}", ended.text);
        assert_eq!(ended.x(), undisturbed.x());
        killed.assert_nothing_is_left();
    }
}

#[test]
fn the_built_in_library_is_another_than_that_of_the_system() {
    let program = Path::new(env!("CARGO_BIN_EXE_skt-hpl"));
    let mut mxp = mpirun(2);
    mxp.arg(program).args("mxp --n 300 --nb 40 --ft none --progress off".split(' '));
    let ended = run(mxp.args(["--blas", "built-in"])).expect(0);
    assert!(ended.out.contains("PASSED") && ended.out.contains(": built-in BLAS"), "{}", ended.out);
    let flags = "--n 250 --nb 16 --p 1 --q 2 --checkpoint-every 2p! --progress off --ft self";
    let job = |name: &str| Job::new(program, 2, &format!("blas-built-in-{name}"), flags);
    let undisturbed = job("whole").start(&["--blas", "built-in"]);
    assert!(undisturbed.ok && undisturbed.text.contains("PASSED"), "{}", undisturbed.text);
    let killed = job("killed");
    let ended = killed.start(&["--blas", "built-in", "--inject", "1@encode:epoch=3"]);
    assert!(!ended.ok && ended.text.contains("signal 9"), "{}", ended.text);
    let ended = killed.start(&[]);
    assert!(!ended.ok && ended.text.contains("add --blas built-in, or"), "{}", ended.text);
    let ended = killed.start(&["--blas", "built-in"]);
    assert!(ended.ok && !ended.text.contains("last bits of x"), "{}", ended.text);
    assert_eq!(ended.x(), undisturbed.x());
    killed.assert_nothing_is_left();
}

#[test]
fn a_library_that_is_named_at_a_restart_is_taken_with_a_warning() {
    let library = planted("planted_blas_renamed", "");
    let flags = "--n 250 --nb 16 --p 1 --q 2 --checkpoint-every 2p! --progress off --ft self";
    let job = Job::new(Path::new(env!("CARGO_BIN_EXE_skt-hpl")), 2, "blas-named", flags);
    let library = library.to_str().unwrap();
    assert!(!job.start(&["--blas", library, "--inject", "1@encode:epoch=3"]).ok);
    let ended = job.start(&["--blas", skt_solver::blas::library::name()]);
    assert!(ended.ok && ended.text.contains("PASSED"), "{}", ended.text);
    let warning = "warning: this test was computed with the BLAS ";
    assert_eq!(ended.text.matches(warning).count(), 1, "{}", ended.text);
    assert!(ended.text.contains("): the last bits of x may differ"), "{}", ended.text);
    job.assert_nothing_is_left();
}
