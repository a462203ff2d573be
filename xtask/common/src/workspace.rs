//! Where the sources are and in which forms they are built. Each form has its own target folder, so that
//! changing between them rebuilds nothing.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The triple that sanitized builds name, as `-Zbuild-std` demands, and builds for the fuzzer: its flags
/// must not reach build scripts.
pub const TRIPLE: &str = "x86_64-unknown-linux-gnu";

/// Variables that a caller, or the `cargo` that started this program, may have set and that would change
/// what a nested build is or does. Each child gets its own values or none.
const NOT_INHERITED: [&str; 12] = [
    "RUSTFLAGS",
    "RUSTDOCFLAGS",
    "CARGO_ENCODED_RUSTFLAGS",
    "CARGO_ENCODED_RUSTDOCFLAGS",
    "CARGO_BUILD_RUSTFLAGS",
    "CARGO_BUILD_RUSTDOCFLAGS",
    "CARGO_BUILD_TARGET",
    "CARGO_BUILD_TARGET_DIR",
    "CARGO_TARGET_DIR",
    "CARGO_MANIFEST_DIR",
    "CARGO_MANIFEST_PATH",
    "RUSTC_BOOTSTRAP",
];

/// Beginnings of further such variables: what `cargo run` sets for this program, and the bounds of the tests.
const NOT_INHERITED_PREFIXES: [&str; 4] =
    ["CARGO_PKG_", "CARGO_PROFILE_", "LOOM_MAX_", "PACELINE_"];

/// The instrumentation that shows libFuzzer which code an input has reached, and its comparisons.
const COVERAGE: &str =
    "--cfg fuzzing -C debug-assertions -C codegen-units=1 -C passes=sancov-module \
    -C llvm-args=-sanitizer-coverage-level=4 -C llvm-args=-sanitizer-coverage-inline-8bit-counters \
    -C llvm-args=-sanitizer-coverage-pc-table -C llvm-args=-sanitizer-coverage-trace-compares";

/// The package of the pool, which the models and the stress are about.
pub const CORE: &str = "paceline";

/// A tree of sources and the folders its builds go to.
#[derive(Debug)]
pub struct Workspace {
    /// The folder with the workspace's `Cargo.toml`.
    pub root: PathBuf,
    /// Where logs are kept.
    pub logs: PathBuf,
    /// The target folder of [`Form::Std`].
    std_target: PathBuf,
    /// The folder above the target folders of the other forms.
    targets: PathBuf,
}

/// The form in which the library is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// As users get it.
    Std,
    /// With loom's primitives instead of std's.
    Loom,
    /// With shuttle's primitives instead of std's.
    Shuttle,
    /// Watched by ThreadSanitizer.
    Tsan,
    /// Watched by AddressSanitizer and LeakSanitizer.
    Asan,
    /// As users get it, but without observation.
    Unobserved,
    /// With coverage for libFuzzer.
    Fuzz,
}

impl Workspace {
    /// The tree that this program belongs to.
    pub fn this() -> Workspace {
        let common = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root = common.ancestors().nth(2).unwrap_or(common).to_owned();
        let target = root.join("target");
        Workspace {
            logs: target.join("xtask"),
            std_target: target.clone(),
            targets: target,
            root,
        }
    }

    /// A copy in which faults are planted, with builds of its own.
    pub fn faulty_copy(&self, name: &str) -> Workspace {
        let folder = self.targets.join("faults").join(name);
        Workspace {
            root: folder.join("tree"),
            logs: folder.join("logs"),
            std_target: folder.join("std"),
            targets: folder,
        }
    }

    /// The folder of a package.
    pub fn package(&self, name: &str) -> PathBuf {
        self.root.join("crates").join(name)
    }

    /// A `cargo` that builds this tree in the given form and inherits nothing that would change it.
    pub fn cargo(&self, form: Form) -> Command {
        self.cargo_into(&self.target(form), form)
    }

    /// The same, with a target folder of its own.
    pub fn cargo_apart(&self, folder: &str) -> Command {
        self.cargo_into(&self.targets.join(folder), Form::Std)
    }

    /// A file among the logs.
    pub fn log(&self, name: &str) -> PathBuf {
        let name = name.replace("::", "-").replace(['/', ' '], "-");
        self.logs.join(format!("{name}.log"))
    }

    /// The target folder of a form.
    pub fn target(&self, form: Form) -> PathBuf {
        match form {
            Form::Std => self.std_target.clone(),
            Form::Loom => self.targets.join("loom"),
            Form::Shuttle => self.targets.join("shuttle"),
            Form::Tsan => self.targets.join("tsan"),
            Form::Asan => self.targets.join("asan"),
            Form::Unobserved => self.targets.join("unobserved"),
            Form::Fuzz => self.targets.join("fuzz"),
        }
    }

    /// A `cargo` with everything set explicitly.
    fn cargo_into(&self, target: &Path, form: Form) -> Command {
        let mut cargo = Command::new("cargo");
        without_inherited(&mut cargo);
        cargo
            .current_dir(&self.root)
            .env("CARGO_TARGET_DIR", target);
        if let Some(flags) = form.rustflags() {
            cargo.env("RUSTFLAGS", flags);
        }
        if form.is_sanitized() {
            cargo.env("RUSTC_BOOTSTRAP", "1");
        }
        cargo
    }
}

impl Form {
    /// Further options of `cargo test` and `cargo build`.
    pub fn cargo_options(self) -> &'static [&'static str] {
        match self {
            Form::Tsan | Form::Asan => &["-Zbuild-std", "--target", TRIPLE],
            Form::Fuzz => &["--target", TRIPLE],
            _ => &[],
        }
    }

    /// Whether a sanitizer watches, which takes options of the nightly compiler.
    fn is_sanitized(self) -> bool {
        matches!(self, Form::Tsan | Form::Asan)
    }

    /// The flags that make the form.
    fn rustflags(self) -> Option<&'static str> {
        match self {
            Form::Std => None,
            Form::Loom => Some("--cfg loom -C debug-assertions"),
            Form::Shuttle => Some("--cfg shuttle -C debug-assertions"),
            Form::Tsan => Some("-Zsanitizer=thread"),
            Form::Asan => Some("-Zsanitizer=address"),
            Form::Unobserved => Some("--cfg paceline_unobserved"),
            Form::Fuzz => Some(COVERAGE),
        }
    }
}

/// Takes the variables away that a child must not inherit.
pub fn without_inherited(command: &mut Command) {
    for name in NOT_INHERITED {
        command.env_remove(name);
    }
    for (name, _) in env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        if NOT_INHERITED_PREFIXES
            .iter()
            .any(|prefix| name.starts_with(prefix))
        {
            command.env_remove(name);
        }
    }
}

/// How many commits there are; zero if git does not say.
pub fn commits() -> usize {
    let mut git = Command::new("git");
    let count = git.args(["rev-list", "--count", "HEAD"]).output().ok();
    let count = count.and_then(|output| String::from_utf8(output.stdout).ok());
    count.and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a command sets a variable to.
    fn setting(command: &Command, name: &str) -> Option<String> {
        let (_, value) = command.get_envs().find(|(set, _)| *set == name)?;
        Some(value?.to_string_lossy().into_owned())
    }

    #[test]
    fn a_form_brings_its_flags_and_its_folder() {
        let workspace = Workspace::this();
        let loom = workspace.cargo(Form::Loom);
        assert_eq!(
            setting(&loom, "RUSTFLAGS").as_deref(),
            Some("--cfg loom -C debug-assertions")
        );
        assert!(setting(&loom, "CARGO_TARGET_DIR")
            .unwrap()
            .ends_with("target/loom"));
        assert_eq!(setting(&loom, "RUSTC_BOOTSTRAP"), None);
        let tsan = workspace.cargo(Form::Tsan);
        assert_eq!(setting(&tsan, "RUSTC_BOOTSTRAP").as_deref(), Some("1"));
    }

    #[test]
    fn the_copy_shares_no_folder_with_the_tree() {
        let workspace = Workspace::this();
        let copy = workspace.faulty_copy("lane");
        for form in [Form::Std, Form::Loom, Form::Shuttle] {
            assert_ne!(workspace.target(form), copy.target(form));
        }
        assert!(copy.target(Form::Std).ends_with("target/faults/lane/std"));
    }
}
