//! An SVG document, piece by piece.
//!
//! Pieces have classes; the style sheet gives them colours for light and for dark surroundings. The background is
//! painted, so that text is readable wherever the picture is put.

use std::fmt::Write;

use super::WIDTH;

/// The colours and fonts. Verdicts differ by shape too: see `ratios`.
const STYLE: &str = "\
text{font:12px system-ui,'DejaVu Sans',Arial,sans-serif;fill:#1f2328}
.head{font-weight:600;font-size:14px}.small{font-size:11px}.faint{fill:#59636e}.ours-text{font-weight:600;fill:#b33c00}
.back{fill:#fff}.stripe{fill:#f6f8fa}.grid{stroke:#d8dee4}.axis{stroke:#818b98}.one{stroke:#1f2328;stroke-width:1.5}
.bar-ours{fill:#f9b08a}.bar-house{fill:#fbdcc8}.bar-peer{fill:#c5d3e3}
.line{stroke-width:2;fill:none}.gap{stroke:#fff;stroke-width:3}.mark{stroke-width:3;fill:none}.bound{stroke:#1f2328;stroke-width:2}
.ours{stroke:#c2410c}.house{stroke:#c9703f}.peer{stroke:#3b5b7e}
.reached{stroke:#1a7f37;fill:#1a7f37}.missed{stroke:#cf222e;fill:#cf222e}.open{stroke:#7d5a00;fill:#fff}
@media (prefers-color-scheme:dark){
text{fill:#e6edf3}.faint{fill:#9198a1}.ours-text{fill:#ff9a63}
.back{fill:#0d1117}.stripe{fill:#161b22}.grid{stroke:#30363d}.axis{stroke:#767e89}.one{stroke:#e6edf3}
.bar-ours{fill:#8a3b14}.bar-house{fill:#4d2a17}.bar-peer{fill:#2c3f55}.bound{stroke:#e6edf3}.gap{stroke:#0d1117}
.ours{stroke:#ff8a4c}.house{stroke:#c9794f}.peer{stroke:#8fb4dd}
.reached{stroke:#3fb950;fill:#3fb950}.missed{stroke:#ff6a62;fill:#ff6a62}.open{stroke:#e0b13a;fill:#0d1117}
}
";

/// Which point of a text its place names.
#[derive(Clone, Copy, Debug)]
pub(super) enum Anchor {
    /// Its beginning.
    Start,
    /// Its middle.
    Middle,
    /// Its end.
    End,
}

/// A document under construction.
#[derive(Debug)]
pub(super) struct Svg {
    /// The pieces so far.
    body: String,
}

impl Svg {
    /// A document with a title, and with more about it in a second line.
    pub(super) fn new(title: &str, about: &str) -> Svg {
        let named = escaped(&format!("{title}: {about}"));
        let mut svg = Svg {
            body: format!("<title>{named}</title>\n<style>\n{STYLE}</style>\n"),
        };
        svg.piece("<rect class='back' width='100%' height='100%'/>");
        svg.text("head", (12.0, 24.0), Anchor::Start, title);
        svg.text("faint", (12.0, 43.0), Anchor::Start, about);
        svg
    }

    /// A filled rectangle from a corner, of a width and a height.
    pub(super) fn rect(&mut self, class: &str, (x, y): (f64, f64), (width, height): (f64, f64)) {
        let place = format!("x='{x:.1}' y='{y:.1}' width='{width:.1}' height='{height:.1}'");
        self.piece(&format!("<rect class='{class}' {place}/>"));
    }

    /// A straight line.
    pub(super) fn line(&mut self, class: &str, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
        let place = format!("x1='{x1:.1}' y1='{y1:.1}' x2='{x2:.1}' y2='{y2:.1}'");
        self.piece(&format!("<line class='{class}' {place}/>"));
    }

    /// A line through points. `style` is CSS of its own.
    pub(super) fn path(&mut self, class: &str, style: &str, points: &[(f64, f64)]) {
        let texts = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}"));
        let points = texts.collect::<Vec<_>>().join(" ");
        self.piece(&format!(
            "<polyline class='{class}' style='{style}' points='{points}'/>"
        ));
    }

    /// A closed and filled shape.
    pub(super) fn shape(&mut self, class: &str, points: &[(f64, f64)]) {
        let texts = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}"));
        let points = texts.collect::<Vec<_>>().join(" ");
        self.piece(&format!("<polygon class='{class}' points='{points}'/>"));
    }

    /// A circle.
    pub(super) fn circle(&mut self, class: &str, style: &str, (x, y): (f64, f64), radius: f64) {
        let place = format!("cx='{x:.1}' cy='{y:.1}' r='{radius:.1}'");
        self.piece(&format!(
            "<circle class='{class}' style='{style}' {place}/>"
        ));
    }

    /// A text on a base line.
    pub(super) fn text(&mut self, class: &str, (x, y): (f64, f64), anchor: Anchor, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let (place, text) = (format!("x='{x:.1}' y='{y:.1}'"), escaped(text));
        self.piece(&format!(
            "<text class='{class}' {place} text-anchor='{anchor}'>{text}</text>"
        ));
    }

    /// The whole document, of this height.
    pub(super) fn finish(self, height: f64) -> String {
        let size =
            format!("width='{WIDTH:.0}' height='{height:.0}' viewBox='0 0 {WIDTH:.0} {height:.0}'");
        let space = "http://www.w3.org/2000/svg";
        format!(
            "<svg xmlns='{space}' {size} role='img'>\n{}</svg>\n",
            self.body
        )
    }

    /// Adds a line to the document.
    fn piece(&mut self, piece: &str) {
        debug_assert!(!piece.contains("NaN") && !piece.contains("'inf"), "{piece}");
        writeln!(self.body, "{piece}").expect("a string takes everything");
    }
}

/// Text without what SVG would take for its own.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped() {
        let mut svg = Svg::new("a < b", "& c");
        svg.text("small", (1.0, 2.0), Anchor::End, ">= 1.0");
        let document = svg.finish(100.0);
        assert!(document.contains("<title>a &lt; b: &amp; c</title>"));
        assert!(document.contains("text-anchor='end'>&gt;= 1.0</text>"));
    }

    #[test]
    fn the_document_is_closed_and_has_its_size() {
        let document = Svg::new("t", "u").finish(120.0);
        assert!(document
            .starts_with("<svg xmlns='http://www.w3.org/2000/svg' width='800' height='120'"));
        assert!(document.ends_with("</svg>\n"));
    }
}
