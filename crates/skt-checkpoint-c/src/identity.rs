//! The default of the option `application`, so that no other program continues its data.
//!
//! The ranks of a job may have programs and arguments of their own, and all of them count. A file
//! that all ranks share is read by rank 0 alone: thousands of nodes would otherwise read it at
//! once.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::hash::Hasher as _;
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use serde_json::json;
use skt_comm::Comm;
use skt_comm::collect::{all_reduce, broadcast, broadcast_bytes};
use skt_host::shown::{shell_quoted, shown_message};
use twox_hash::XxHash3_64;

use crate::code::{Code, Result, Stop};

/// The running program's file, which stays readable when another has taken its path.
const FILE: &str = "/proc/self/exe";
const PIECE_BYTES: usize = 1 << 20;

/// The number of runs of each name that this process has ended.
static ENDED: Mutex<BTreeMap<String, u64>> = Mutex::new(BTreeMap::new());

pub(crate) fn note_ended(run_id: &str) {
    let mut ended = ENDED.lock().unwrap_or_else(PoisonError::into_inner);
    *ended.entry(run_id.to_owned()).or_default() += 1;
}

struct Program {
    /// The last part of the name by which it was called.
    name: Vec<u8>,
    arguments: Vec<Vec<u8>>,
    /// A hash of the path, number, size and time of its file. A file of which all this is the same
    /// on two nodes is on a file system that they share, or a copy of one image.
    file: u64,
}

impl Program {
    fn read() -> io::Result<Self> {
        let line = fs::read("/proc/self/cmdline")?;
        let line = line.strip_suffix(b"\0").unwrap_or(&line);
        let mut words = line.split(|byte| *byte == 0).map(<[u8]>::to_vec);
        let called = words.next().unwrap_or_default();
        let name = called.rsplit(|byte| *byte == b'/').next().unwrap_or_default().to_vec();
        let (path, found) = (fs::read_link(FILE)?, fs::metadata(FILE)?);
        let place = (found.ino(), found.size(), found.mtime(), found.mtime_nsec());
        let mut file = XxHash3_64::new();
        file.write(path.as_os_str().as_bytes());
        file.write(format!("{place:?}").as_bytes());
        Ok(Self { name, arguments: words.collect(), file: file.finish() })
    }

    fn hash_of_call(&self) -> u64 {
        let mut hash = XxHash3_64::new();
        for word in [&self.name].into_iter().chain(&self.arguments) {
            hash.write(word);
            hash.write(b"\0");
        }
        hash.finish()
    }

    fn format_arguments(&self) -> String {
        let quoted = |word: &Vec<u8>| shell_quoted(&String::from_utf8_lossy(word));
        let words: Vec<String> = self.arguments.iter().map(quoted).collect();
        shortened(&words.join(" "), &self.arguments.join(&0))
    }
}

fn hash_of(file: &Path) -> io::Result<u64> {
    let (mut file, mut hash) = (File::open(file)?, XxHash3_64::new());
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        match file.read(&mut piece)? {
            0 => return Ok(hash.finish()),
            bytes => hash.write(&piece[..bytes]),
        }
    }
}

/// A text that has room in a record, with a hash of the `exact` bytes unless it shows all of them.
fn shortened(text: &str, exact: &[u8]) -> String {
    let shown = shown_message(text);
    if shown == text && !text.contains(char::REPLACEMENT_CHARACTER) {
        return shown;
    }
    format!("{shown} (hash {:016x})", XxHash3_64::oneshot(exact))
}

/// Describes the program in run `run_id` as a JSON object, the same on all ranks; the inner error
/// is that of a rank that cannot read what it runs. Collective.
pub(crate) fn agree(comm: &Comm, run_id: &str) -> skt_comm::Result<Result<String>> {
    let here = Program::read();
    let mut failure = here.as_ref().err().map(io::Error::to_string);
    let mut read = || match hash_of(Path::new(FILE)) {
        Ok(contents) => contents,
        Err(error) => {
            failure.get_or_insert(error.to_string());
            0
        }
    };
    // The hashes of the file, of its contents and of the call of rank 0.
    let mut first = [0; 3];
    if let (0, Ok(here)) = (comm.rank(), &here) {
        first = [here.file, read(), here.hash_of_call()];
    }
    broadcast(comm, &mut first, 0)?;
    let [file, first_contents, first_call] = first;
    let (contents, call) = match &here {
        Ok(here) => {
            let is_shared = comm.rank() == 0 || here.file == file;
            (if is_shared { first_contents } else { read() }, here.hash_of_call())
        }
        Err(_) => (0, 0),
    };
    let hash = format!("{} {contents} {call}", comm.rank());
    // The ranks that cannot read their program, those with another program or other arguments than
    // rank 0, and a hash of each rank's number, program and arguments.
    let mut all = [
        u64::from(failure.is_some()),
        u64::from((contents, call) != (first_contents, first_call)),
        XxHash3_64::oneshot(hash.as_bytes()),
    ];
    all_reduce(comm, &mut all, u64::wrapping_add)?;
    let [failed, others, hashes] = all;
    if failed > 0 {
        let why = failure.map_or(String::new(), |why| format!(" ({why})"));
        let text = format!(
            "{failed} rank(s) cannot read in /proc what they run{why}: identify this program's \
             data by the option application"
        );
        return Ok(Err(Stop::new(Code::Options, text)));
    }
    let others = match others {
        0 => "as rank 0".to_owned(),
        _ => format!("{hashes:016x}"),
    };
    let mut text = match &here {
        Ok(here) if comm.rank() == 0 => description(here, contents, &others, run_id).into_bytes(),
        _ => Vec::new(),
    };
    broadcast_bytes(comm, &mut text, 0)?;
    Ok(Ok(String::from_utf8(text).expect("JSON")))
}

/// Describes the program of rank 0, and those of the `others`.
fn description(here: &Program, contents: u64, others: &str, run_id: &str) -> String {
    let folder = std::env::current_dir().unwrap_or_default();
    let folder = shortened(&folder.to_string_lossy(), folder.as_os_str().as_bytes());
    let ended = ENDED.lock().unwrap_or_else(PoisonError::into_inner);
    let fields = json!({
        "program": shortened(&String::from_utf8_lossy(&here.name), &here.name),
        "contents of the program": format!("{contents:016x}"),
        "arguments": here.format_arguments(),
        "working folder": folder,
        "program and arguments of other ranks": others,
        "runs of this name that the process has ended": ended.get(run_id).copied().unwrap_or(0),
    });
    fields.to_string()
}

#[cfg(test)]
mod tests {
    use skt_comm::threads;

    use super::*;

    fn program(arguments: &[&[u8]]) -> Program {
        let arguments = arguments.iter().map(|word| word.to_vec()).collect();
        Program { name: b"heat".to_vec(), arguments, file: 1 }
    }

    #[test]
    fn arguments_that_differ_in_any_byte_have_distinct_texts() {
        let [long, other] = ["a", "b"].map(|middle| {
            let end = "x".repeat(1000);
            format!("{end}{middle}{end}")
        });
        let cases: [&[&[u8]]; 9] = [
            &[],
            &[b""],
            &[b"2000", b"5"],
            &[b"2000 5"],
            &[b"caf\xe9"],
            &[b"caf\xe8"],
            &["caf\u{fffd}".as_bytes()],
            &[long.as_bytes()],
            &[other.as_bytes()],
        ];
        let words = cases.map(|case| program(case).format_arguments());
        assert_eq!(words[2], "2000 5");
        assert_eq!(words[3], "'2000 5'");
        for (index, text) in words.iter().enumerate() {
            assert!(!words[..index].contains(text), "{text}");
            assert!(text.len() < 400, "{text}");
        }
    }

    #[test]
    fn a_hash_is_of_all_bytes_of_a_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("program");
        let mut bytes = vec![7; 2 * PIECE_BYTES + 1];
        fs::write(&path, &bytes).expect("room");
        let before = hash_of(&path).expect("readable");
        assert_eq!(before, XxHash3_64::oneshot(&bytes));
        bytes[PIECE_BYTES] ^= 1;
        fs::write(&path, &bytes).expect("room");
        assert_ne!(hash_of(&path).expect("readable"), before);
    }

    #[test]
    fn all_ranks_describe_the_program_by_one_text() {
        let agreed = || {
            let job = threads::run(3, |comm| agree(&comm, "run"));
            let text =
                |rank: skt_comm::Result<Result<String>>| rank.expect("all live").expect("read");
            job.into_iter().map(text).collect::<Vec<String>>()
        };
        let texts = agreed();
        assert!(texts.iter().all(|text| *text == texts[0]), "{texts:?}");
        let fields: serde_json::Value = serde_json::from_str(&texts[0]).expect("JSON");
        let contents = format!("{:016x}", hash_of(Path::new(FILE)).expect("readable"));
        assert_eq!(fields["contents of the program"], contents);
        assert_eq!(fields["program and arguments of other ranks"], "as rank 0");
        note_ended("run");
        assert_ne!(agreed(), texts, "the next run of this name is another one");
    }
}
