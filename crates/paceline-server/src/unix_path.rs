//! A Unix socket at a path: taken from no server that listens there, and given up without a trace.

use std::{
    fs::{self, File},
    io,
    os::unix::{
        fs::{FileTypeExt, MetadataExt, PermissionsExt},
        net::UnixListener,
    },
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use rustix::fs::{flock, FlockOperation};
use socket2::{Domain, SockAddr, Socket, Type};

/// How often a start tries to get the folder for itself, and how long it waits in between.
const TRIES: u32 = 100;
const PAUSE: Duration = Duration::from_millis(10);

/// The path of a socket that this server has made. It is removed when this is dropped, unless
/// another file has taken its place.
///
/// It must be dropped before the listener is closed: until then no other server takes the path for
/// one that is left over, and the system gives the number of its inode to no other file.
#[derive(Debug)]
pub(crate) struct OwnPath {
    path: PathBuf,
    identity: Option<Identity>,
}

/// The device and the inode of a file.
type Identity = (u64, u64);

impl OwnPath {
    fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            identity: identity(path),
        }
    }
}

impl Drop for OwnPath {
    fn drop(&mut self) {
        if self.identity.is_some() && self.identity == identity(&self.path) {
            // Another process may have removed it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> Option<Identity> {
    let file = fs::symlink_metadata(path).ok()?;
    Some((file.dev(), file.ino()))
}

/// Listens at `path`. A connection can be made only after `listen`, so no peer finds the socket with
/// another mode.
pub(crate) fn bind_unix(
    path: &Path,
    mode: Option<u32>,
    backlog: i32,
) -> io::Result<(OwnPath, UnixListener)> {
    // From `bind` to `listen`, other servers would take the socket for one that is left over.
    let _alone = lock_folder(path)?;
    let address = SockAddr::unix(path)?;
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    if let Err(error) = socket.bind(&address) {
        if error.kind() != io::ErrorKind::AddrInUse || !is_left_over(path, &address) {
            return Err(error);
        }
        fs::remove_file(path)?;
        socket.bind(&address)?;
    }
    let own = OwnPath::new(path);
    if let Some(mode) = mode {
        fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    }
    socket.listen(backlog)?;
    Ok((own, socket.into()))
}

/// Keeps other servers from starting in the folder of `path`. A folder that can't be opened is not
/// locked: what is wrong with it, `bind` says.
fn lock_folder(path: &Path) -> io::Result<Option<File>> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let Ok(file) = File::open(folder) else {
        return Ok(None);
    };
    for _ in 0..TRIES {
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            return Ok(Some(file));
        }
        thread::sleep(PAUSE);
    }
    let text = format!("another process holds the lock of the folder {folder:?}");
    Err(io::Error::new(io::ErrorKind::ResourceBusy, text))
}

/// Whether there is a socket at which no process listens. (The system refuses connections to other
/// files too, and one that waits in a full backlog must not hold up the start.)
fn is_left_over(path: &Path, address: &SockAddr) -> bool {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
    let connect = || {
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        socket.connect(address)
    };
    let refused = io::ErrorKind::ConnectionRefused;
    is_socket && connect().is_err_and(|error| error.kind() == refused)
}
