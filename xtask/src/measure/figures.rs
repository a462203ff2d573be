//! The figures of a package, made of those of its files.

use std::collections::BTreeMap;

use super::source::Source;

/// The figures of a package.
#[derive(Debug, Default)]
pub(super) struct Figures {
    /// How many files it has.
    files: usize,
    /// All lines.
    lines: usize,
    /// Lines that are too long.
    long_lines: usize,
    /// Lines with a comment.
    comments: usize,
    /// Comments whose subject is not named.
    unnamed: usize,
    /// Comments with `told` or `tells`.
    told: usize,
    /// `match` on a bool.
    bool_matches: usize,
    /// Types of the workspace that each file imports, sorted.
    imports: Vec<usize>,
    /// The type with the most methods.
    most_methods: Largest,
    /// The type with the most fields.
    most_fields: Largest,
    /// Fields that hold atomics.
    atomics: usize,
}

/// The most methods of a type that the project aims at.
const MOST_METHODS: usize = 45;

/// The most fields of a type that the project aims at.
const MOST_FIELDS: usize = 10;

/// The largest of the types, by some count.
#[derive(Debug, Default, PartialEq, Eq)]
struct Largest {
    /// Its name.
    name: String,
    /// Its count.
    count: usize,
    /// The number of files that the count is spread over.
    files: usize,
    /// How many types are over the aim.
    over: usize,
}

/// A type: the file that defines it, and its name. Several types of a package may share a name.
type Definition<'a> = (&'a str, &'a str);

impl Figures {
    /// The first two lines of the table.
    pub(super) const HEADING: &str = "\
| package | files | lines | over 100 columns | comment lines | `who`, `whoever`, `somebody`, `nobody`, per 100 | `told`, `tells` \
| match on a bool | own types imported, median / p90 | most methods; types over 45 | most fields; types over 10 \
| atomic fields |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |";

    /// Adds up the files of a package.
    pub(super) fn of(sources: &[Source]) -> Figures {
        let sum = |count: fn(&Source) -> usize| sources.iter().map(count).sum();
        let mut imports: Vec<_> = sources.iter().map(|it| it.syntax.imports.len()).collect();
        imports.sort_unstable();
        Figures {
            files: sources.len(),
            lines: sum(|it| it.lines),
            long_lines: sum(|it| it.long_lines),
            comments: sum(|it| it.comments),
            unnamed: sum(|it| it.unnamed),
            told: sum(|it| it.told),
            bool_matches: sum(|it| it.syntax.bool_matches),
            imports,
            most_methods: largest(methods(sources), MOST_METHODS),
            most_fields: largest(fields(sources), MOST_FIELDS),
            atomics: sum(|it| it.syntax.atomics),
        }
    }

    /// A row of the table.
    pub(super) fn row(&self, package: &str) -> String {
        let long = percent(self.long_lines, self.lines);
        let unnamed = percent(self.unnamed, self.comments);
        let imports = [50, 90].map(|rank| percentile(&self.imports, rank));
        format!(
            "| {package} | {} | {} | {} ({long:.1} %) | {} | {unnamed:.1} | {} | {} | {} / {} | {} | {} | {} |",
            self.files,
            self.lines,
            self.long_lines,
            self.comments,
            self.told,
            self.bool_matches,
            imports[0],
            imports[1],
            self.most_methods.cell(),
            self.most_fields.cell(),
            self.atomics,
        )
    }
}

impl Largest {
    /// As a cell of the table.
    fn cell(&self) -> String {
        let Largest {
            name,
            count,
            files,
            over,
        } = self;
        match files {
            0 => "-".to_owned(),
            1 => format!("{count} (`{name}`); {over}"),
            _ => format!("{count} (`{name}`, {files} files); {over}"),
        }
    }
}

/// How many methods each type has, file by file.
fn methods(sources: &[Source]) -> BTreeMap<Definition<'_>, Vec<usize>> {
    let mut methods: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for source in sources {
        for (name, count) in &source.syntax.methods {
            let file = defining(sources, source, name);
            methods
                .entry((file, name.as_str()))
                .or_default()
                .push(*count);
        }
    }
    methods
}

/// How many fields each type has.
fn fields(sources: &[Source]) -> BTreeMap<Definition<'_>, Vec<usize>> {
    let mut fields = BTreeMap::new();
    for source in sources {
        for (name, count) in &source.syntax.fields {
            fields.insert((source.path.as_str(), name.as_str()), vec![*count]);
        }
    }
    fields
}

/// The file that defines the type which an `impl` in `user` names: this one, or that with the longest
/// beginning of the path in common.
fn defining<'a>(sources: &'a [Source], user: &'a Source, name: &str) -> &'a str {
    let candidates = sources
        .iter()
        .filter(|source| source.syntax.types.contains(name));
    let nearest = candidates.max_by_key(|source| shared_length(&source.path, &user.path));
    &nearest.unwrap_or(user).path
}

/// The length of the common beginning of two paths; without end if they are the same.
fn shared_length(one: &str, other: &str) -> usize {
    if one == other {
        return usize::MAX;
    }
    let pairs = one.bytes().zip(other.bytes());
    pairs.take_while(|(one, other)| one == other).count()
}

/// The type with the largest sum, and how many types are over the aim.
fn largest(counts: BTreeMap<Definition<'_>, Vec<usize>>, aim: usize) -> Largest {
    let sum = |counts: &Vec<usize>| counts.iter().sum::<usize>();
    let over = counts.values().filter(|counts| sum(counts) > aim).count();
    let all = counts.iter().map(|((_, name), counts)| Largest {
        name: (*name).to_owned(),
        count: sum(counts),
        files: counts.len(),
        over,
    });
    all.max_by_key(|it| it.count).unwrap_or_default()
}

/// How many of a hundred.
fn percent(part: usize, whole: usize) -> f64 {
    100.0 * part as f64 / whole.max(1) as f64
}

/// The count below or at which this part of a hundred lies, in a sorted list; zero in an empty one.
fn percentile(sorted: &[usize], rank: usize) -> usize {
    let at = (sorted.len() * rank).div_ceil(100);
    sorted.get(at.saturating_sub(1)).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files with these texts.
    fn sources(files: &[(&str, &str)]) -> Vec<Source> {
        files
            .iter()
            .map(|(path, text)| Source::read(path, text))
            .collect()
    }

    #[test]
    fn the_methods_of_a_type_are_counted_over_its_files() {
        let sources = sources(&[
            (
                "a/src/slot.rs",
                "struct Slot { a: u8 } impl Slot { fn a() {} }",
            ),
            (
                "a/src/slot/end.rs",
                "impl super::Slot { fn b() {} fn c() {} }",
            ),
            (
                "a/src/other.rs",
                "struct End { a: u8, b: u8 } impl End { fn d() {} fn e() {} }",
            ),
        ]);
        let figures = Figures::of(&sources);
        let slot = Largest {
            name: "Slot".to_owned(),
            count: 3,
            files: 2,
            over: 0,
        };
        assert_eq!(figures.most_methods, slot);
        assert_eq!(figures.most_fields.name, "End");
        assert_eq!(figures.most_methods.cell(), "3 (`Slot`, 2 files); 0");
    }

    /// One name for two types would make one large type of two small ones.
    #[test]
    fn types_of_one_name_are_not_added_up() {
        let sources = sources(&[
            (
                "a/src/x/end.rs",
                "struct End; impl End { fn a() {} fn b() {} }",
            ),
            ("a/src/y/end.rs", "enum End {} impl End { fn a() {} }"),
            ("a/src/y/more.rs", "impl End { fn b() {} fn c() {} }"),
        ]);
        assert_eq!(Figures::of(&sources).most_methods.count, 3);
    }

    #[test]
    fn types_over_the_aim_are_counted() {
        let fields = |count: usize| "a: u8,".repeat(count);
        let text = format!(
            "struct A {{ {} }} struct B {{ {} }}",
            fields(10),
            fields(11)
        );
        let most = Figures::of(&sources(&[("a/src/b.rs", &text)])).most_fields;
        assert_eq!((most.count, most.over), (11, 1));
        assert_eq!(Largest::default().cell(), "-");
    }

    #[test]
    fn percentiles_are_counts_that_occur() {
        assert_eq!(percentile(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10], 50), 5);
        assert_eq!(percentile(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10], 90), 9);
        assert_eq!(percentile(&[7], 90), 7);
        assert_eq!(percentile(&[], 50), 0);
    }

    #[test]
    fn a_row_has_as_many_cells_as_the_heading() {
        let row = Figures::of(&sources(&[("a/src/b.rs", "// Who is told.\n")])).row("a");
        let cells = |line: &str| line.matches('|').count();
        for line in Figures::HEADING.lines() {
            assert_eq!(cells(line), cells(&row), "{line}");
        }
        assert!(
            row.starts_with("| a | 1 | 1 | 0 (0.0 %) | 1 | 100.0 | 1 | 0 | 0 / 0 |"),
            "{row}"
        );
    }
}
