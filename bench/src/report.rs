//! The table of results.
//!
//! In: measurements and targets. Out: a table or JSON. It must not depend on how figures are measured.

use comfy_table::{CellAlignment, Table, TableStyle};
use serde::Serialize;

/// Units of figures.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Unit {
    Microseconds,
    Milliseconds,
    Mebibytes,
    Kibibytes,
    Count,
    Ratio,
}

/// The target for a figure.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Target {
    AtLeast(f64),
    AtMost(f64),
    Exactly(f64),
}

/// A row of the table.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Figure {
    /// What was measured.
    pub(crate) name: String,
    pub(crate) unit: Unit,
    /// The value, or the median of several.
    pub(crate) measured: f64,
    /// The 99th percentile, if there are several values.
    pub(crate) p99: Option<f64>,
    /// `None` for figures without a target.
    pub(crate) target: Option<Target>,
    /// Additional information.
    pub(crate) note: String,
}

impl Figure {
    /// A single value.
    pub(crate) fn new(name: impl Into<String>, unit: Unit, measured: f64) -> Self {
        Self {
            name: name.into(),
            unit,
            measured,
            p99: None,
            target: None,
            note: String::new(),
        }
    }

    /// The median and 99th percentile of several samples.
    pub(crate) fn of(name: impl Into<String>, unit: Unit, samples: &Samples) -> Self {
        Self {
            p99: Some(samples.quantile(0.99)),
            ..Self::new(name, unit, samples.quantile(0.5))
        }
    }

    pub(crate) fn at_most(mut self, target: f64) -> Self {
        self.target = Some(Target::AtMost(target));
        self
    }

    pub(crate) fn at_least(mut self, target: f64) -> Self {
        self.target = Some(Target::AtLeast(target));
        self
    }

    pub(crate) fn exactly(mut self, target: f64) -> Self {
        self.target = Some(Target::Exactly(target));
        self
    }

    pub(crate) fn note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }

    /// The value divided by the target.
    fn ratio(&self) -> Option<f64> {
        match self.target? {
            Target::AtLeast(target) | Target::AtMost(target) | Target::Exactly(target) => {
                (target != 0.0).then(|| self.measured / target)
            }
        }
    }

    /// Whether the target is met; `None` without a target.
    pub(crate) fn met(&self) -> Option<bool> {
        Some(match self.target? {
            Target::AtLeast(target) => self.measured >= target,
            Target::AtMost(target) => self.measured <= target,
            Target::Exactly(target) => self.measured == target,
        })
    }

    fn verdict(&self) -> String {
        let Some(met) = self.met() else {
            return String::new();
        };
        if met {
            return "met".to_owned();
        }
        match (self.target, self.ratio()) {
            (Some(Target::AtMost(_)), Some(ratio)) => {
                format!("missed by {:.0}%", (ratio - 1.0) * 100.0)
            }
            (Some(Target::AtLeast(_)), Some(ratio)) => {
                format!("missed by {:.0}%", (1.0 - ratio) * 100.0)
            }
            (
                Some(Target::AtLeast(target) | Target::AtMost(target) | Target::Exactly(target)),
                _,
            ) => {
                format!("missed by {}", number((self.measured - target).abs()))
            }
            (None, _) => String::new(),
        }
    }

    fn with_unit(&self, value: f64) -> String {
        let unit = match self.unit {
            Unit::Microseconds => " µs",
            Unit::Milliseconds => " ms",
            Unit::Mebibytes => " MiB",
            Unit::Kibibytes => " KiB",
            Unit::Count => "",
            Unit::Ratio => " x",
        };
        format!("{}{unit}", number(value))
    }
}

/// A number with about three significant digits.
fn number(value: f64) -> String {
    match value.abs() {
        _ if value.fract() == 0.0 => format!("{value:.0}"),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// Samples of one measurement.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples(Vec<f64>);

impl Samples {
    pub(crate) fn push(&mut self, sample: f64) {
        self.0.push(sample);
    }

    /// The quantile at `share`, which is always one of the samples; 0 without samples.
    pub(crate) fn quantile(&self, share: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let rank = (share * sorted.len() as f64).ceil() as usize;
        sorted
            .get(rank.saturating_sub(1))
            .copied()
            .unwrap_or_default()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

impl FromIterator<f64> for Samples {
    fn from_iter<I: IntoIterator<Item = f64>>(samples: I) -> Self {
        Self(samples.into_iter().collect())
    }
}

/// The figures as a table.
pub(crate) fn table(figures: &[Figure]) -> String {
    let mut table = Table::new();
    table.load_style(TableStyle::new());
    table.set_header([
        "figure", "measured", "p99", "target", "ratio", "verdict", "",
    ]);
    for figure in figures {
        let target = match figure.target {
            None => String::new(),
            Some(Target::AtLeast(target)) => format!("≥ {}", figure.with_unit(target)),
            Some(Target::AtMost(target)) => format!("≤ {}", figure.with_unit(target)),
            Some(Target::Exactly(target)) => format!("= {}", figure.with_unit(target)),
        };
        let p99 = figure.p99.map(|p99| figure.with_unit(p99));
        let ratio = figure.ratio().map(|ratio| format!("{ratio:.2}"));
        table.add_row([
            figure.name.clone(),
            figure.with_unit(figure.measured),
            p99.unwrap_or_default(),
            target,
            ratio.unwrap_or_default(),
            figure.verdict(),
            figure.note.clone(),
        ]);
    }
    for column in 1..5 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.trim_fmt()
}

/// The figures as JSON, with `ratio` and `met` for each figure that has a target.
pub(crate) fn json(figures: &[Figure]) -> serde_json::Result<String> {
    #[derive(Serialize)]
    struct Judged<'a> {
        #[serde(flatten)]
        figure: &'a Figure,
        ratio: Option<f64>,
        met: Option<bool>,
    }
    let judged: Vec<Judged<'_>> = figures
        .iter()
        .map(|figure| Judged {
            figure,
            ratio: figure.ratio(),
            met: figure.met(),
        })
        .collect();
    serde_json::to_string_pretty(&judged)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_samples() {
        let samples: Samples = (1..=100).rev().map(f64::from).collect();
        assert_eq!(samples.quantile(0.5), 50.0);
        assert_eq!(samples.quantile(0.99), 99.0);
        assert_eq!(Samples::default().quantile(0.5), 0.0);
        assert_eq!([7.0].into_iter().collect::<Samples>().quantile(0.99), 7.0);
    }

    #[test]
    fn verdicts_show_the_distance_from_the_target() {
        let figure = |measured| Figure::new("x", Unit::Milliseconds, measured);
        assert_eq!(figure(1.5).at_most(2.0).verdict(), "met");
        assert_eq!(figure(2.5).at_most(2.0).verdict(), "missed by 25%");
        assert_eq!(figure(3.0).exactly(1.0).verdict(), "missed by 2");
        assert_eq!(figure(3.0).at_most(0.0).verdict(), "missed by 3");
        assert_eq!(figure(0.0).exactly(0.0).verdict(), "met");
        assert_eq!(figure(3.0).verdict(), "");
    }
}
