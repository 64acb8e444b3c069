//! The chart: two bars a row, each as long as its share of the longer one.

use std::fmt::Write;

use crate::bench::ground::Contender;
use crate::bench::report::{About, chosen, figure_of};
use crate::bench::{Plan, Results};

/// Pixels.
const WIDTH: f64 = 760.0;
const LEFT: f64 = 190.0;
/// The longest bar; the figure stands to the right of it.
const BAR: f64 = 440.0;
const ROW: f64 = 46.0;
const HEAD: f64 = 44.0;
const FOOT: f64 = 48.0;

/// An SVG with the rows in which both were measured.
pub fn draw(plan: &Plan, results: &Results, about: &About) -> String {
    let rows: Vec<_> = chosen(plan, results)
        .filter_map(|row| {
            Some((row, results.median(row.name, Contender::Ours)?, results.reference(row.name)?))
        })
        .collect();
    let height = HEAD + ROW * rows.len() as f64 + FOOT;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
         height=\"{height}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
    );
    legend(&mut svg);
    for (number, (row, ours, reference)) in rows.into_iter().enumerate() {
        let top = HEAD + ROW * number as f64;
        let better = if row.more_is_better { "more is better" } else { "less is better" };
        text(&mut svg, (10.0, top + 16.0), "#1b1f24", row.name);
        text(&mut svg, (10.0, top + 32.0), "#8b949e", better);
        let longest = ours.max(reference);
        for (offset, figure, colour) in [(4.0, ours, OURS), (20.0, reference, REFERENCE)] {
            let length = if longest > 0.0 { (BAR * figure / longest).max(1.0) } else { 1.0 };
            bar(&mut svg, (LEFT, top + offset), length, colour);
            let at = (LEFT + length + 6.0, top + offset + 12.0);
            text(&mut svg, at, "#1b1f24", &figure_of(row.unit, figure));
        }
    }
    for (line, words) in
        [&about.machine, &format!("{}; {}", about.date, about.extent)].into_iter().enumerate()
    {
        text(&mut svg, (10.0, height - 26.0 + 16.0 * line as f64), "#57606a", words);
    }
    svg + "</svg>\n"
}

const OURS: &str = "#1a7f5a";
const REFERENCE: &str = "#9aa4b2";

fn legend(svg: &mut String) {
    for (x, colour, words) in
        [(LEFT, OURS, "gc-daemon"), (LEFT + 120.0, REFERENCE, "kube-controller-manager")]
    {
        bar(svg, (x, 14.0), 14.0, colour);
        text(svg, (x + 20.0, 26.0), "#1b1f24", words);
    }
}

fn bar(svg: &mut String, (x, y): (f64, f64), length: f64, colour: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(
        svg,
        "<rect x=\"{x}\" y=\"{y}\" width=\"{length:.1}\" height=\"14\" rx=\"2\" fill=\"{colour}\"/>"
    );
}

fn text(svg: &mut String, (x, y): (f64, f64), colour: &str, words: &str) {
    let words = words.replace('&', "&amp;").replace('<', "&lt;");
    let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y}\" fill=\"{colour}\">{words}</text>");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::report::tests::example;

    #[test]
    fn the_worse_of_two_has_the_longer_bar_where_less_is_better() {
        let (plan, results, about) = example();
        let svg = draw(&plan, &results, &about);
        assert_eq!(svg.matches("height=\"14\"").count(), 2 + 2 * 4);
        // 12 MB beside 90 MB.
        assert!(svg.contains("width=\"58.7\"") && svg.contains("width=\"440.0\""), "{svg}");
        assert!(svg.ends_with("</svg>\n"));
    }
}
