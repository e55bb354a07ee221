//! The time that an Envoy takes to match an expression.
//!
//! RE2 reads each byte once, through an automaton that it builds while it reads. An automaton with more states than fit
//! into RE2's memory is built again and again, which takes a thousand times as long. So the time is estimated by building
//! the automaton as RE2 does, up to a limit.

use std::collections::HashSet;
use std::sync::Arc;

use regex_automata::nfa::thompson::{NFA, State, WhichCaptures};
use regex_automata::util::primitives::StateID;
use regex_syntax::hir::{Hir, HirKind, Look};

use super::program;

/// The size of the largest request without its body, in bytes: Envoy's limit.
pub const REQUEST: usize = 60 * 1_024;

/// The time to read a byte if the automaton has been built, in picoseconds.
const BYTE: u64 = 1_500;
/// The time to start matching, in nanoseconds.
const START: u64 = 100;
/// The time to build a transition, in nanoseconds.
const TRANSITION: u64 = 250;
/// The additional time for each instruction in a transition, in nanoseconds.
const INSTRUCTION: u64 = 8;
/// The length of the beginnings that are compared, in bytes.
pub const BEGINNING: usize = 64;

/// The limits on building an automaton.
const MAX_STATES: usize = 4_000;
/// The maximum number of instructions to look at.
const MAX_EFFORT: u64 = 50_000;

/// The time for an expression, and the requests that take that time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measure {
    /// The longest time for a request of [`REQUEST`] bytes, in nanoseconds; `None` if the automaton is too large.
    pub nanos: Option<u64>,
    /// The part of it that a few bytes may take, if each request needs other parts of the automaton.
    pub building: u64,
    /// What all matching strings start with. Other strings take next to no time. May be truncated.
    pub beginning: Arc<[u8]>,
}

impl Measure {
    /// Measures a valid pattern. Takes the work from `effort`; without any left, the result is an upper bound.
    pub fn of(pattern: &str, effort: &mut u64) -> Self {
        let parsed = regex_syntax::ast::parse::Parser::new().parse(pattern).ok();
        let program = parsed.and_then(|ast| program::read(pattern, 0, &ast));
        let Some(program) = program else {
            return Self {
                nanos: None,
                building: 0,
                beginning: Arc::default(),
            };
        };
        let mut beginning = Vec::new();
        begin(&program, &mut beginning);
        beginning.truncate(BEGINNING);
        let times = times(&program, effort);
        Self {
            nanos: times.map(|(reading, building)| reading + building),
            building: times.map_or(0, |(_, building)| building),
            beginning: beginning.into(),
        }
    }
}

/// Adds the literal that an expression starts with. Returns whether that is the whole expression.
fn begin(program: &Hir, out: &mut Vec<u8>) -> bool {
    match program.kind() {
        HirKind::Empty | HirKind::Look(Look::Start) => true,
        HirKind::Literal(literal) => {
            out.extend_from_slice(&literal.0);
            true
        }
        HirKind::Capture(group) => begin(&group.sub, out),
        HirKind::Concat(parts) => parts.iter().all(|part| begin(part, out)),
        _ => false,
    }
}

/// The time of the first request, and the additional time of each request that needs other parts of the automaton.
fn times(program: &Hir, effort: &mut u64) -> Option<(u64, u64)> {
    let longest = program.properties().maximum_len();
    // A longer text is read up to the byte that can't match any more.
    let read = longest.map_or(REQUEST, |longest| longest.saturating_add(1).min(REQUEST));
    let read = u64::try_from(read).unwrap_or(u64::MAX);
    let config = NFA::config()
        .utf8(false)
        .which_captures(WhichCaptures::None);
    let nfa = NFA::compiler().configure(config).build_from_hir(program);
    let nfa = nfa.ok()?;
    let steps = START + read * BYTE / 1_000;
    let mut allowed = MAX_EFFORT.min(*effort);
    let before = allowed;
    let built = Automaton::new(&nfa).transitions(&mut allowed);
    *effort = effort.saturating_sub(before - allowed);
    let each = TRANSITION + INSTRUCTION * 2 * instructions(&nfa);
    // A request needs at most one new transition for each of its bytes.
    let most = read.saturating_mul(each);
    Some(match built {
        Some(Transitions {
            count,
            instructions,
        }) => {
            let all = count * TRANSITION + instructions * INSTRUCTION;
            (steps + all.min(most), 0)
        }
        // The automaton may be built again for each request.
        None if longest.is_some() => (steps, most),
        None => return None,
    })
}

fn instructions(nfa: &NFA) -> u64 {
    nfa.states().iter().map(weight).sum()
}

/// The number of RE2's instructions for a state.
fn weight(state: &State) -> u64 {
    match state {
        State::Sparse(sparse) => u64::try_from(sparse.transitions.len()).unwrap_or(u64::MAX),
        _ => 1,
    }
}

/// The size of an automaton.
struct Transitions {
    /// The number of transitions, except to the state without instructions.
    count: u64,
    /// The number of instructions in the transitions' states.
    instructions: u64,
}

/// An automaton whose states are sets of the program's states.
struct Automaton<'a> {
    nfa: &'a NFA,
    /// The round in which a state was added last.
    added: Vec<u32>,
    round: u32,
}

impl<'a> Automaton<'a> {
    fn new(nfa: &'a NFA) -> Self {
        Self {
            nfa,
            added: vec![0; nfa.states().len()],
            round: 0,
        }
    }

    /// Builds the automaton; `None` if it is too large. Takes the work from `effort`.
    fn transitions(&mut self, effort: &mut u64) -> Option<Transitions> {
        let classes = self.nfa.byte_classes();
        let units = classes.representatives(..);
        let bytes: Vec<u8> = units.filter_map(|unit| unit.as_u8()).collect();
        let mut size = Transitions {
            count: 0,
            instructions: 0,
        };
        self.round += 1;
        let mut start = Vec::new();
        self.close(self.nfa.start_anchored(), &mut start);
        start.sort_unstable();
        let mut known: HashSet<Vec<StateID>> = HashSet::new();
        let mut open = vec![start.clone()];
        known.insert(start);
        while let Some(set) = open.pop() {
            let own: u64 = set.iter().map(|id| weight(self.nfa.state(*id))).sum();
            for byte in &bytes {
                *effort = effort.checked_sub(own.saturating_add(1))?;
                let mut next = Vec::new();
                self.round = self.round.checked_add(1)?;
                for id in &set {
                    if let Some(to) = after(self.nfa.state(*id), *byte) {
                        self.close(to, &mut next);
                    }
                }
                if next.is_empty() {
                    continue;
                }
                next.sort_unstable();
                let added: u64 = next.iter().map(|id| weight(self.nfa.state(*id))).sum();
                size.count += 1;
                size.instructions += own + added;
                if !known.contains(&next) {
                    if known.len() >= MAX_STATES {
                        return None;
                    }
                    known.insert(next.clone());
                    open.push(next);
                }
            }
        }
        Some(size)
    }

    /// Adds the states that are reached from `from` without reading a byte. Assertions count as true.
    fn close(&mut self, from: StateID, set: &mut Vec<StateID>) {
        let mut open = vec![from];
        while let Some(id) = open.pop() {
            if std::mem::replace(&mut self.added[id.as_usize()], self.round) == self.round {
                continue;
            }
            match self.nfa.state(id) {
                State::Union { alternates } => open.extend(alternates.iter().copied()),
                State::BinaryUnion { alt1, alt2 } => open.extend([*alt1, *alt2]),
                State::Capture { next, .. } | State::Look { next, .. } => open.push(*next),
                State::Fail => {}
                _ => set.push(id),
            }
        }
    }
}

/// The state after this byte.
fn after(state: &State, byte: u8) -> Option<StateID> {
    match state {
        State::ByteRange { trans } => trans.matches_byte(byte).then_some(trans.next),
        State::Sparse(sparse) => sparse.matches_byte(byte),
        State::Dense(dense) => dense.matches_byte(byte),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measure(pattern: &str) -> Measure {
        let mut effort = u64::MAX;
        Measure::of(pattern, &mut effort)
    }

    fn micros(pattern: &str) -> Option<u64> {
        measure(pattern).nanos.map(|nanos| nanos / 1_000)
    }

    #[test]
    fn an_expression_that_may_read_a_whole_request_takes_a_tenth_of_a_millisecond() {
        for pattern in [
            "/.*",
            "/[^/]+/x",
            "/v[0-9]+/.*",
            r"/.*\bab\b.*",
            "(?i)/a/.*x.*",
            r"/\pL+",
        ] {
            let micros = micros(pattern).expect("few states");
            assert!((90..120).contains(&micros), "{pattern}: {micros}");
        }
    }

    #[test]
    fn a_bounded_expression_takes_little_time() {
        for pattern in [
            "/a",
            "/[0-9]{1,20}",
            "/(a|b|cd)/x",
            "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}",
        ] {
            let micros = micros(pattern).expect("few states");
            assert!(micros < 60, "{pattern}: {micros}");
        }
    }

    #[test]
    fn an_automaton_with_too_many_states_has_no_time() {
        for pattern in [".*a.{12}", ".*a[^/]{20}b", "(.*a){200}"] {
            assert_eq!(micros(pattern), None, "{pattern}");
        }
        // Bounded by the length of its strings.
        assert!(micros("[ab]{0,20}a[ab]{20}") < Some(200));
    }

    #[test]
    fn without_effort_left_the_time_is_an_upper_bound() {
        let mut none = 0;
        let bounded = Measure::of("/[0-9]{1,20}", &mut none).nanos;
        assert!(bounded > measure("/[0-9]{1,20}").nanos);
        assert_eq!(Measure::of("/.*", &mut none).nanos, None);
    }

    #[test]
    fn the_beginning_is_a_literal() {
        let beginning = |pattern: &str| {
            let found = measure(pattern).beginning;
            String::from_utf8(found.to_vec()).expect("text")
        };
        assert_eq!(beginning("^/a/(b[0-9]+)"), "/a/b");
        assert_eq!(beginning(r"/a\.b(?:/c|/d+)"), "/a.b");
        assert_eq!(beginning("(?i)/a"), "/");
        assert_eq!(beginning("/a|/b"), "");
        assert_eq!(beginning(".*a"), "");
    }
}
