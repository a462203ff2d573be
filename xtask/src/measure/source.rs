//! What is counted in one file.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::{self, Visit};

use crate::rust_text::{comments_only, contains_word};

/// Subjects that do not name the actor.
const UNNAMED: [&str; 4] = ["who", "whoever", "somebody", "nobody"];

/// The verb that is used for a return value, a notification, a report and more.
const TOLD: [&str; 2] = ["told", "tells"];

/// The widest line.
const COLUMNS: usize = 100;

/// The figures of one file.
#[derive(Debug, Default)]
pub(super) struct Source {
    /// Its path from the root.
    pub(super) path: String,
    /// All lines.
    pub(super) lines: usize,
    /// Lines over [`COLUMNS`].
    pub(super) long_lines: usize,
    /// Lines with a comment.
    pub(super) comments: usize,
    /// Lines with a comment that has one of [`UNNAMED`].
    pub(super) unnamed: usize,
    /// Lines with a comment that has one of `TOLD`.
    pub(super) told: usize,
    /// What a parser finds.
    pub(super) syntax: Syntax,
}

/// What a parser finds in one file.
#[derive(Debug, Default)]
pub(super) struct Syntax {
    /// `match` with an arm `true` or `false`.
    pub(super) bool_matches: usize,
    /// The types that it imports from the workspace; tests do not count.
    pub(super) imports: BTreeSet<String>,
    /// Fields of each struct with names; tests do not count.
    pub(super) fields: BTreeMap<String, usize>,
    /// The names of all types that it defines; tests do not count.
    pub(super) types: BTreeSet<String>,
    /// Methods in the inherent `impl`s, by type; tests do not count.
    pub(super) methods: BTreeMap<String, usize>,
    /// Fields that are or hold atomics; tests do not count.
    pub(super) atomics: usize,
}

impl Source {
    /// Counts everything in a file. What does not parse has no syntax: the compiler complains about it.
    pub(super) fn read(path: &str, text: &str) -> Source {
        let comments = comments_only(text);
        let count = |words: &[&str]| comments.lines().filter(|line| has_any(line, words)).count();
        Source {
            path: path.to_owned(),
            lines: text.lines().count(),
            long_lines: text.lines().filter(|line| is_long(line)).count(),
            comments: comments
                .lines()
                .filter(|line| !line.trim().is_empty())
                .count(),
            unnamed: count(&UNNAMED),
            told: count(&TOLD),
            syntax: Syntax::of(path, text),
        }
    }
}

impl Syntax {
    /// Parses and visits a file.
    fn of(path: &str, text: &str) -> Syntax {
        let mut syntax = Syntax::default();
        if let Ok(file) = syn::parse_file(text) {
            let in_tests = path.ends_with("/tests.rs") || path.contains("/tests/");
            Visitor {
                syntax: &mut syntax,
                in_tests,
            }
            .visit_file(&file);
        }
        syntax
    }
}

/// Whether a line of a comment has one of these words, in any case.
fn has_any(line: &str, words: &[&str]) -> bool {
    let line = line.to_lowercase();
    words.iter().any(|word| contains_word(&line, word))
}

/// Whether a line is over [`COLUMNS`].
fn is_long(line: &str) -> bool {
    line.chars().count() > COLUMNS
}

/// Visits a file.
struct Visitor<'a> {
    /// Where it counts.
    syntax: &'a mut Syntax,
    /// Whether it is inside of tests, where only matches count.
    in_tests: bool,
}

impl<'ast> Visit<'ast> for Visitor<'_> {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        let outside = self.in_tests;
        self.in_tests |= module.attrs.iter().any(is_test_only);
        visit::visit_item_mod(self, module);
        self.in_tests = outside;
    }

    fn visit_expr_match(&mut self, expression: &'ast syn::ExprMatch) {
        let on_bool = expression.arms.iter().any(|arm| is_bool(&arm.pat));
        self.syntax.bool_matches += usize::from(on_bool);
        visit::visit_expr_match(self, expression);
    }

    fn visit_item_use(&mut self, import: &'ast syn::ItemUse) {
        if !self.in_tests {
            self.imported(&import.tree);
        }
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.defined(&item.ident);
        if let (syn::Fields::Named(fields), false) = (&item.fields, self.in_tests) {
            let name = item.ident.to_string();
            self.syntax.fields.insert(name, fields.named.len());
        }
        visit::visit_item_struct(self, item);
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.defined(&item.ident);
        visit::visit_item_enum(self, item);
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        let mut search = AtomicSearch(false);
        search.visit_type(&field.ty);
        self.syntax.atomics += usize::from(search.0 && !self.in_tests);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if let (None, Some(name), false) = (&item.trait_, type_name(&item.self_ty), self.in_tests) {
            let is_method = |item: &&syn::ImplItem| matches!(item, syn::ImplItem::Fn(_));
            let methods = item.items.iter().filter(is_method).count();
            *self.syntax.methods.entry(name).or_default() += methods;
        }
        visit::visit_item_impl(self, item);
    }
}

impl Visitor<'_> {
    /// Notes a type that the file defines.
    fn defined(&mut self, name: &syn::Ident) {
        if !self.in_tests {
            self.syntax.types.insert(name.to_string());
        }
    }

    /// Notes the types that an import from the workspace names.
    fn imported(&mut self, tree: &syn::UseTree) {
        match tree {
            syn::UseTree::Path(path) if is_of_workspace(&path.ident.to_string()) => {
                add_types(&path.tree, &mut self.syntax.imports);
            }
            syn::UseTree::Group(group) => group.items.iter().for_each(|item| self.imported(item)),
            _ => {}
        }
    }
}

/// Adds the types that an import names. What follows the name of a type is a variant of it.
fn add_types(tree: &syn::UseTree, types: &mut BTreeSet<String>) {
    let name = match tree {
        syn::UseTree::Path(path) if !is_type(&path.ident.to_string()) => {
            return add_types(&path.tree, types);
        }
        syn::UseTree::Group(group) => {
            return group.items.iter().for_each(|item| add_types(item, types));
        }
        syn::UseTree::Path(path) => &path.ident,
        syn::UseTree::Name(name) => &name.ident,
        syn::UseTree::Rename(rename) => &rename.ident,
        syn::UseTree::Glob(_) => return,
    };
    if is_type(&name.to_string()) {
        types.insert(name.to_string());
    }
}

/// Whether the first name of a path leads into the workspace.
fn is_of_workspace(name: &str) -> bool {
    matches!(name, "crate" | "super" | "self") || name.starts_with("paceline")
}

/// Whether a name is that of a type: a capital letter first, and not capitals alone as in a constant.
fn is_type(name: &str) -> bool {
    let is_constant = name.len() > 1 && !name.contains(char::is_lowercase);
    name.starts_with(char::is_uppercase) && !is_constant
}

/// Whether a pattern is `true` or `false`.
fn is_bool(pattern: &syn::Pat) -> bool {
    matches!(
        pattern,
        syn::Pat::Lit(syn::ExprLit {
            lit: syn::Lit::Bool(_),
            ..
        })
    )
}

/// Whether an attribute is `#[cfg(test)]`, or a longer condition that begins with `test` or `all(test`.
fn is_test_only(attribute: &syn::Attribute) -> bool {
    let syn::Meta::List(list) = &attribute.meta else {
        return false;
    };
    let condition = list.tokens.to_string().replace(' ', "");
    list.path.is_ident("cfg")
        && (condition.starts_with("test") || condition.starts_with("all(test"))
}

/// The name of the type that an `impl` is for, without its module and its parameters.
fn type_name(of: &syn::Type) -> Option<String> {
    match of {
        syn::Type::Path(path) => Some(path.path.segments.last()?.ident.to_string()),
        _ => None,
    }
}

/// Looks for an atomic in the type of a field.
struct AtomicSearch(bool);

impl<'ast> Visit<'ast> for AtomicSearch {
    fn visit_ident(&mut self, name: &'ast syn::Ident) {
        self.0 |= name.to_string().starts_with("Atomic");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file of a library.
    fn read(text: &str) -> Source {
        Source::read("crates/a/src/b.rs", text)
    }

    #[test]
    fn words_count_in_comments_alone_and_once_a_line() {
        let source = read(
            "//! Who asks is told, and nobody tells.\n/// Whole, a whoop.\nlet who = \"told\"; // told\n\n/* Somebody\nelse */\n",
        );
        assert_eq!((source.lines, source.comments), (6, 5));
        assert_eq!((source.unnamed, source.told), (2, 2));
    }

    #[test]
    fn columns_are_characters() {
        let line = |length| "\u{e4}".repeat(length);
        let source = read(&format!("// {}\n// {}\n", line(97), line(98)));
        assert_eq!(source.long_lines, 1);
    }

    #[test]
    fn a_match_on_a_bool_is_found_wherever_it_stands() {
        let source = read(
            "fn a(b: bool) -> u8 { match b { true => 1, _ => match !b { false => 2, true => 3 } } }\n\
             fn c(d: Option<bool>) -> bool { match d { Some(true) => true, _ => false } }\n\
             #[cfg(test)] mod tests { fn e() { match f() { true => {} false => {} } } }\n",
        );
        assert_eq!(source.syntax.bool_matches, 3);
    }

    #[test]
    fn imports_are_types_of_the_workspace() {
        let source = read(
            "use std::sync::Arc;\nuse crate::{a::{Own, LIMIT, helper}, b::Kind::{One, Two}, c::*};\n\
             use paceline_server::Session as Other;\nuse super::Own;\n\
             #[cfg(test)] mod tests { use super::Hidden; }\n",
        );
        let names: Vec<_> = source.syntax.imports.iter().map(String::as_str).collect();
        assert_eq!(names, ["Kind", "Own", "Session"]);
    }

    #[test]
    fn fields_methods_and_atomics_are_those_of_what_ships() {
        let source = read(
            "struct A<'a> { b: &'a u8, c: Padded<AtomicU64>, d: [AtomicBool; 2] }\nstruct B(AtomicUsize);\n\
             enum C { D { e: AtomicU8 } }\n\
             impl A<'_> { fn f() {} const G: u8 = 1; fn h(&self) {} }\nimpl A<'static> { fn i() {} }\n\
             impl Clone for A<'_> { fn clone(&self) -> Self { todo!() } }\n\
             #[cfg(all(test, not(loom)))] mod tests { struct J { k: AtomicU8 } impl J { fn l() {} } }\n",
        );
        assert_eq!(source.syntax.fields, BTreeMap::from([("A".to_owned(), 3)]));
        assert_eq!(source.syntax.methods, BTreeMap::from([("A".to_owned(), 3)]));
        assert_eq!(source.syntax.atomics, 4);
    }

    #[test]
    fn a_file_of_tests_defines_nothing() {
        let text = "struct A { b: AtomicU8 }";
        for path in ["crates/a/src/tests.rs", "crates/a/src/tests/b.rs"] {
            let syntax = Source::read(path, text).syntax;
            assert_eq!((syntax.types.len(), syntax.atomics), (0, 0), "{path}");
        }
    }
}
