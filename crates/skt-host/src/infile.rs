//! Files that a user names, to be read. Devices and folders are refused: `/dev/zero` has no end.
//! Pipes stay, as of `/dev/stdin` and of a shell's `<(...)`, and so do terminals.

use std::fs::File;
use std::io::{self, IsTerminal as _, Read as _};
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

use crate::units;

/// More than a list of all nodes or ranks of a machine has.
pub const LIST_BYTES_MAX: u64 = 64 << 20;

/// Opens a file, to be read as a stream.
pub fn open(path: &Path) -> io::Result<File> {
    let file = File::open(path)?;
    let kind = file.metadata()?.file_type();
    let is_device = kind.is_block_device() || kind.is_char_device() && !file.is_terminal();
    match (kind.is_dir(), is_device) {
        (true, _) => Err(io::Error::other("it is a folder, not a file")),
        (_, true) => Err(io::Error::other("it is a device, not a file")),
        _ => Ok(file),
    }
}

/// The bytes of a file of at most `max_bytes`.
pub fn read(path: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.take(max_bytes + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max_bytes {
        return Err(io::Error::other(format!("it is larger than {}", units::bytes(max_bytes))));
    }
    Ok(bytes)
}

/// The text of a file of at most `max_bytes`.
pub fn read_text(path: &Path, max_bytes: u64) -> io::Result<String> {
    String::from_utf8(read(path, max_bytes)?).map_err(|_| io::Error::other("it is no UTF-8 text"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::*;

    #[test]
    fn only_files_with_an_end_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let [file, pipe] = ["file", "pipe"].map(|name| folder.path().join(name));
        fs::write(&file, b"text").unwrap();
        mkfifo(&pipe, Mode::S_IRWXU).unwrap();
        assert_eq!(read_text(&file, 4).unwrap(), "text");
        let writer = std::thread::spawn({
            let pipe = pipe.clone();
            move || fs::write(pipe, b"text").unwrap()
        });
        assert_eq!(read_text(&pipe, 4).unwrap(), "text");
        writer.join().unwrap();
        for (path, why) in [
            (Path::new("/dev/zero"), "it is a device, not a file"),
            (Path::new("/dev/null"), "it is a device, not a file"),
            (folder.path(), "it is a folder, not a file"),
            (&file, "it is larger than 3 B"),
            (&folder.path().join("none"), "No such file"),
        ] {
            let error = read(path, 3).unwrap_err().to_string();
            assert!(error.starts_with(why), "{error}");
        }
        fs::write(&file, b"\xff").unwrap();
        assert!(read_text(&file, 4).unwrap_err().to_string().contains("UTF-8"));
    }
}
