//! Users and groups of the system: the keys `user` and `unix_socket_group`.

use std::{ffi::CString, io};

use nix::unistd::{geteuid, getuid, initgroups, setgid, setuid, Group, User};

use super::sockets::attempted;

/// Has the process run as this user from now on, with the user's groups. All threads change. A
/// process that runs as this user already keeps its groups.
///
/// # Errors
/// There is no such user, or the process may not become it: only root may.
pub(crate) fn become_user(name: &str) -> io::Result<()> {
    let changed = User::from_name(name)
        .map_err(io::Error::from)
        .and_then(|user| user.ok_or_else(|| unknown("user")))
        .and_then(|user| change_to(&user));
    changed.map_err(|why| attempted(format_args!("become the user {name}"), why))
}

fn change_to(user: &User) -> io::Result<()> {
    if getuid() == user.uid && geteuid() == user.uid {
        return Ok(());
    }
    let name = CString::new(user.name.as_str())?;
    // The user comes last: it may not change groups.
    initgroups(&name, user.gid)?;
    setgid(user.gid)?;
    setuid(user.uid)?;
    if getuid() == user.uid && geteuid() == user.uid {
        Ok(())
    } else {
        Err(io::Error::other("the system has not changed the user"))
    }
}

/// The number of a group, by its name or by the number itself.
///
/// # Errors
/// There is no such group.
pub(crate) fn group_number(name: &str) -> io::Result<u32> {
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    let group = Group::from_name(name).map_err(io::Error::from)?;
    group
        .map(|group| group.gid.as_raw())
        .ok_or_else(|| unknown("group"))
}

fn unknown(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("there is no such {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_has_a_name_or_a_number() {
        assert_eq!(group_number("4711").ok(), Some(4711));
        assert_eq!(group_number("root").ok(), Some(0));
        let missing = group_number("no such group").expect_err("nobody has it");
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }

    /// The process of a test must stay as it is: only what changes nothing is tried here.
    #[test]
    fn the_present_user_is_kept_and_an_unknown_one_refused() {
        let own = User::from_uid(getuid()).expect("the table of users");
        if let Some(own) = own {
            become_user(&own.name).expect("it is this user");
        }
        let why = become_user("no such user").expect_err("nobody has it");
        assert_eq!(why.kind(), io::ErrorKind::NotFound);
        assert!(why.to_string().contains("become the user no such user"));
    }
}
