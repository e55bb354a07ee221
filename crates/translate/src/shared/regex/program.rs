//! The size of an expression's program in RE2.
//!
//! Envoy matches bytes, and so does this program.

use regex_syntax::ParserBuilder;
use regex_syntax::ast::{self, Ast};
use regex_syntax::hir::{Class, Hir, HirKind};

/// Reads a pattern as an expression for bytes. `ast` is the pattern from `start`, or a part of another pattern.
pub(super) fn read(pattern: &str, start: usize, ast: &Ast) -> Option<Hir> {
    let mut spans = Vec::new();
    properties(ast, &mut spans);
    let offset = ast.span().start.offset;
    let mut text = pattern.to_owned();
    for span in spans.into_iter().rev() {
        let at = |place: ast::Position| place.offset.checked_sub(offset).map(|at| at + start);
        let place = at(span.start)?..at(span.end)?;
        let class = bytes_of(pattern.get(place.clone())?);
        text.replace_range(place, &class);
    }
    let mut parser = ParserBuilder::new();
    parser.nest_limit(150).unicode(false).utf8(false);
    parser.build().parse(&text).ok()
}

/// The places of Unicode properties, which expressions for bytes don't have, in order.
fn properties(ast: &Ast, found: &mut Vec<ast::Span>) {
    match ast {
        Ast::ClassUnicode(class) => found.push(class.span),
        Ast::ClassBracketed(class) => {
            if let ast::ClassSet::Item(item) = &class.kind {
                properties_of_item(item, found);
            }
        }
        Ast::Repetition(repetition) => properties(&repetition.ast, found),
        Ast::Group(group) => properties(&group.ast, found),
        Ast::Alternation(alternation) => {
            for ast in &alternation.asts {
                properties(ast, found);
            }
        }
        Ast::Concat(concat) => {
            for ast in &concat.asts {
                properties(ast, found);
            }
        }
        _ => {}
    }
}

fn properties_of_item(item: &ast::ClassSetItem, found: &mut Vec<ast::Span>) {
    match item {
        ast::ClassSetItem::Unicode(class) => found.push(class.span),
        ast::ClassSetItem::Union(union) => {
            for item in &union.items {
                properties_of_item(item, found);
            }
        }
        _ => {}
    }
}

/// The characters up to U+00FF that have a property, as a class of bytes.
fn bytes_of(property: &str) -> String {
    let parsed = match negated(property) {
        Some(property) => regex_syntax::parse(&property),
        None => regex_syntax::parse(property),
    };
    let ranges = match parsed.as_ref().map(Hir::kind) {
        Ok(HirKind::Class(Class::Unicode(class))) => class.ranges(),
        // No character has the property, such as that of surrogates.
        _ => &[],
    };
    let mut text = "[".to_owned();
    for range in ranges {
        let (start, end) = (u32::from(range.start()), u32::from(range.end()).min(0xff));
        if start <= end {
            text.push_str(&format!("\\x{start:02x}-\\x{end:02x}"));
        }
    }
    match text.len() {
        1 => "[^\\x00-\\xff]".to_owned(),
        _ => text + "]",
    }
}

/// A property that is negated within the braces, in the form that the parser has.
fn negated(property: &str) -> Option<String> {
    let (sign, name) = property.split_once("{^")?;
    let sign = if sign == r"\p" { r"\P" } else { r"\p" };
    Some(format!("{sign}{{{name}"))
}

/// An upper bound of the number of instructions in RE2. `ast` is valid.
pub(super) fn size(pattern: &str, ast: &Ast) -> u64 {
    /// For the start, the end, and the loop before a match that may be anywhere.
    const FIXED: u64 = 6;
    Sizes {
        pattern,
        // Flags apply to an unknown part of the pattern.
        ignores_case: ignores_case(ast),
    }
    .of(ast)
    .saturating_add(FIXED)
}

struct Sizes<'a> {
    pattern: &'a str,
    ignores_case: bool,
}

impl Sizes<'_> {
    /// The recursion is bounded by the parser's nest limit.
    fn of(&self, ast: &Ast) -> u64 {
        let sum = |parts: &[Ast]| {
            let parts = parts.iter().map(|part| self.of(part));
            parts.fold(0, u64::saturating_add)
        };
        match ast {
            // Repetitions of these have additional branches.
            Ast::Empty(_) | Ast::Flags(_) | Ast::Assertion(_) => 3,
            Ast::Literal(literal) => count(literal.c.len_utf8()),
            Ast::Dot(_) | Ast::ClassPerl(_) | Ast::ClassUnicode(_) | Ast::ClassBracketed(_) => {
                self.ranges(ast)
            }
            Ast::Group(group) => {
                let captures = group.is_capturing();
                self.of(&group.ast)
                    .saturating_add(if captures { 2 } else { 0 })
            }
            Ast::Concat(concat) => sum(&concat.asts),
            Ast::Alternation(alternation) => {
                sum(&alternation.asts).saturating_add(count(alternation.asts.len()))
            }
            Ast::Repetition(repetition) => {
                let (times, optional) = times(&repetition.op.kind);
                let once = self.of(&repetition.ast);
                // In RE2, an expression that may be empty has a second branch if it is repeated.
                let own = match &*repetition.ast {
                    Ast::Group(_) => optional.saturating_mul(2),
                    _ => optional,
                };
                once.saturating_mul(times).saturating_add(own)
            }
        }
    }

    /// The number of a class's ranges.
    fn ranges(&self, class: &Ast) -> u64 {
        let span = class.span();
        let text = &self.pattern[span.start.offset..span.end.offset];
        let flags = if self.ignores_case { "(?i)" } else { "" };
        let parsed = read(&format!("{flags}{text}"), flags.len(), class);
        let ranges = parsed.as_ref().map(Hir::kind);
        let ranges = match ranges {
            Some(HirKind::Class(Class::Bytes(class))) => count(class.ranges().len()).max(1),
            _ => 1,
        };
        // RE2 excludes a control character from spaces, and some versions classify a few letters differently.
        ranges
            + u64::from(text.contains(r"\S"))
            + u64::from(text.contains("\\p") || text.contains("\\P"))
    }
}

/// The number of copies for a repetition, and of branches between them.
fn times(kind: &ast::RepetitionKind) -> (u64, u64) {
    let ast::RepetitionKind::Range(range) = kind else {
        return (1, 1);
    };
    let (min, max) = match *range {
        ast::RepetitionRange::Exactly(times) => (times, times),
        ast::RepetitionRange::AtLeast(min) => (min, min.saturating_add(2)),
        ast::RepetitionRange::Bounded(min, max) => (min, max),
    };
    let copies = match *range {
        ast::RepetitionRange::AtLeast(min) => min,
        _ => max,
    };
    let branches = u64::from(max.saturating_sub(min));
    (u64::from(copies.max(1)), branches)
}

fn count(of: usize) -> u64 {
    u64::try_from(of).unwrap_or(u64::MAX)
}

/// Whether a part of the pattern ignores case.
fn ignores_case(ast: &Ast) -> bool {
    let by = |flags: &ast::Flags| flags.flag_state(ast::Flag::CaseInsensitive) == Some(true);
    match ast {
        Ast::Flags(flags) => by(&flags.flags),
        Ast::Group(group) => {
            let own = matches!(&group.kind, ast::GroupKind::NonCapturing(flags) if by(flags));
            own || ignores_case(&group.ast)
        }
        Ast::Repetition(repetition) => ignores_case(&repetition.ast),
        Ast::Concat(concat) => concat.asts.iter().any(ignores_case),
        Ast::Alternation(alternation) => alternation.asts.iter().any(ignores_case),
        _ => false,
    }
}
