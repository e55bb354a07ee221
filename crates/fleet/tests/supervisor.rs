//! The supervisor with scripts instead of Envoy: restarts, stops, logs, and the parent's death.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sesame_fleet::local::{
    BootstrapFormat, EnvoySpec, Level, ProcessEvent, ProcessEvents, RestartBackoff, Supervisor,
    SupervisorConfig,
};
use sesame_model::FleetId;
use tempfile::TempDir;
use tokio::time::{sleep, timeout};

/// Long enough for a busy machine.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Runs until killed. `exec` avoids a grandchild.
const SLEEP: &str = "exec sleep 1000";

fn fleet(id: &str) -> FleetId {
    id.parse().unwrap_or_else(|_| FleetId::of_gateway("ns", id))
}

struct Fixture {
    supervisor: Supervisor,
    events: ProcessEvents,
    dir: TempDir,
}

fn fixture(change: impl FnOnce(&mut SupervisorConfig)) -> Fixture {
    let dir = tempfile::tempdir().expect("a folder for the test");
    let fake = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fake-envoy.sh");
    let mut config = SupervisorConfig::new(fake, dir.path().join("run"));
    config.kill_after = TIMEOUT;
    change(&mut config);
    let (supervisor, events) = Supervisor::new(config).expect("a supervisor");
    Fixture {
        supervisor,
        events,
        dir,
    }
}

impl Fixture {
    fn ensure(&self, id: &str, script: &str) {
        self.supervisor.ensure(EnvoySpec {
            fleet: fleet(id),
            bootstrap: script.as_bytes().to_vec(),
            format: BootstrapFormat::Yaml,
            concurrency: Some(2),
            admin_socket: self.supervisor.dir(&fleet(id)).admin_socket(),
        });
    }

    async fn next(&mut self) -> ProcessEvent {
        timeout(TIMEOUT, self.events.recv())
            .await
            .expect("an event in time")
            .expect("an event")
    }

    async fn started(&mut self) -> (u32, u32) {
        match self.next().await {
            ProcessEvent::Started { pid, attempt, .. } => (pid, attempt),
            other => panic!("not started: {other:?}"),
        }
    }

    async fn line(&mut self) -> (Level, String, String) {
        match self.next().await {
            ProcessEvent::Log { line, .. } => (line.level, line.component, line.message),
            other => panic!("not a line: {other:?}"),
        }
    }

    /// Waits for the exit event. Returns the exit status and the restart delay.
    async fn exited(&mut self) -> (std::process::ExitStatus, Option<Duration>) {
        match self.next().await {
            ProcessEvent::Exited {
                status, restart_in, ..
            } => (status, restart_in),
            other => panic!("not exited: {other:?}"),
        }
    }

    async fn stop(&self, id: &str) {
        timeout(TIMEOUT * 2, self.supervisor.stop(&fleet(id)))
            .await
            .expect("stopped in time");
    }
}

fn signal(pid: u32, signal: Signal) {
    kill(pid_of(pid), signal).expect("a process to signal");
}

fn pid_of(pid: u32) -> Pid {
    Pid::from_raw(i32::try_from(pid).expect("a process number"))
}

/// Whether the process is running. Zombies don't count.
fn alive(pid: u32) -> bool {
    match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => !stat.contains(") Z "),
        Err(_) if cfg!(target_os = "linux") => false,
        Err(_) => kill(pid_of(pid), None).is_ok(),
    }
}

async fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let waiting = async {
        while !condition() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(timeout(TIMEOUT, waiting).await.is_ok(), "never {what}");
}

#[tokio::test]
async fn output_is_forwarded_as_events() {
    let mut fixture = fixture(|_| {});
    fixture.ensure(
        "f",
        "echo '[error][config] no such cluster' >&2; echo odd >&2; echo access; exec sleep 1000",
    );
    fixture.started().await;
    let mut lines = vec![
        fixture.line().await,
        fixture.line().await,
        fixture.line().await,
    ];
    // The order of lines from different pipes is undefined.
    lines.sort();
    assert_eq!(
        lines,
        [
            (Level::Info, "stdout".to_owned(), "access".to_owned()),
            (Level::Warning, String::new(), "odd".to_owned()),
            (
                Level::Error,
                "config".to_owned(),
                "no such cluster".to_owned()
            ),
        ]
    );
}

#[tokio::test]
async fn envoy_runs_with_its_flags_and_private_files() {
    let mut fixture = fixture(|config| config.drain = Duration::from_millis(1500));
    fixture.ensure(
        "f",
        "stat -c %a \"$2\" . 2>&1; echo \"$@\"; exec sleep 1000",
    );
    fixture.started().await;
    assert_eq!(fixture.line().await.2, "600");
    assert_eq!(fixture.line().await.2, "700");
    let (_, _, flags) = fixture.line().await;
    for flag in [
        "/bootstrap.yaml --disable-hot-restart --ignore-unknown-dynamic-fields",
        "--log-level warning",
        "--concurrency 2",
        "--drain-time-s 2",
    ] {
        assert!(flags.contains(flag), "{flag} is not in {flags}");
    }
}

#[tokio::test]
async fn a_killed_process_is_restarted_at_once() {
    let mut fixture = fixture(|_| {});
    fixture.ensure("f", SLEEP);
    let (first, attempt) = fixture.started().await;
    assert_eq!(attempt, 1);
    signal(first, Signal::SIGKILL);
    let (status, delay) = fixture.exited().await;
    assert_eq!(status.signal(), Some(9));
    assert_eq!(delay, Some(Duration::ZERO));
    let (second, attempt) = fixture.started().await;
    assert_eq!(attempt, 2);
    assert!(second != first && alive(second));
}

#[tokio::test]
async fn a_crash_loop_backs_off() {
    let mut fixture = fixture(|config| {
        config.backoff = RestartBackoff {
            min: Duration::from_millis(8),
            max: Duration::from_millis(30),
            stable_after: TIMEOUT,
        };
    });
    fixture.ensure("f", "exit 3");
    for (attempt, max) in (1..).zip([0, 8, 16, 30, 30]) {
        assert_eq!(fixture.started().await.1, attempt);
        let (status, delay) = fixture.exited().await;
        assert_eq!(status.code(), Some(3));
        let delay = delay.expect("a restart");
        let max = Duration::from_millis(max);
        assert!(delay <= max && delay >= max / 2, "{delay:?}");
    }
    // A stop during a delay takes effect at once.
    fixture.stop("f").await;
}

#[tokio::test]
async fn a_missing_binary_is_reported_and_retried() {
    let mut fixture = fixture(|config| config.envoy = "/nonexistent/envoy".into());
    fixture.ensure("f", "");
    for _ in 0..2 {
        let ProcessEvent::Failed {
            fleet: of, message, ..
        } = fixture.next().await
        else {
            panic!("no failure");
        };
        assert_eq!(of, fleet("f"));
        assert!(
            message.starts_with("cannot start /nonexistent/envoy: "),
            "{message}"
        );
    }
}

#[tokio::test]
async fn stop_ends_the_process_and_removes_its_files() {
    let mut fixture = fixture(|_| {});
    fixture.ensure(
        "f",
        "trap 'echo bye; exit 5' TERM; echo up; while :; do sleep 0.01; done",
    );
    let (pid, _) = fixture.started().await;
    assert_eq!(fixture.line().await.2, "up");
    let dir = fixture.supervisor.dir(&fleet("f")).path().to_owned();
    assert!(dir.exists());
    fixture.stop("f").await;
    assert!(!alive(pid) && !dir.exists());
    assert_eq!(fixture.line().await.2, "bye");
    let (status, delay) = fixture.exited().await;
    assert_eq!((status.code(), delay), (Some(5), None));
    // Stopping an unknown fleet is not an error, and a stopped fleet can start again.
    fixture.stop("f").await;
    fixture.ensure("f", SLEEP);
    assert_eq!(fixture.started().await.1, 1);
}

#[tokio::test]
async fn a_process_that_ignores_sigterm_is_killed() {
    let mut fixture = fixture(|config| config.kill_after = Duration::from_millis(50));
    fixture.ensure("f", "trap '' TERM; echo up; while :; do sleep 0.01; done");
    let (pid, _) = fixture.started().await;
    assert_eq!(fixture.line().await.2, "up");
    fixture.stop("f").await;
    assert!(!alive(pid));
    assert_eq!(fixture.exited().await.0.signal(), Some(9));
}

#[tokio::test]
async fn only_a_changed_spec_restarts_the_process() {
    let mut fixture = fixture(|_| {});
    fixture.ensure("f", SLEEP);
    let (first, _) = fixture.started().await;
    fixture.ensure("f", SLEEP);
    fixture.ensure("f", "echo new; exec sleep 1000");
    let (status, delay) = fixture.exited().await;
    assert_eq!((status.signal(), delay), (Some(15), None));
    let (second, attempt) = fixture.started().await;
    assert_eq!(attempt, 1);
    assert_eq!(fixture.line().await.2, "new");
    assert!(!alive(first) && alive(second));
}

#[tokio::test]
async fn calls_during_a_stop_take_effect_after_it() {
    let mut fixture = fixture(|_| {});
    fixture.ensure("f", SLEEP);
    let (first, _) = fixture.started().await;
    let calls = async {
        fixture.ensure("f", "exit 1");
        fixture.ensure("f", SLEEP);
        fixture.stop("f").await;
        assert!(!fixture.supervisor.dir(&fleet("f")).path().exists());
        fixture.ensure("f", SLEEP);
    };
    tokio::join!(fixture.stop("f"), calls);
    assert_eq!(fixture.exited().await.1, None);
    let (second, attempt) = fixture.started().await;
    assert_eq!(attempt, 1);
    assert!(!alive(first) && alive(second));
}

#[tokio::test]
async fn a_stop_takes_effect_when_called() {
    let mut fixture = fixture(|_| {});
    fixture.ensure("f", SLEEP);
    let (first, _) = fixture.started().await;
    let stopped = fixture.supervisor.stop(&fleet("f"));
    fixture.ensure("f", SLEEP);
    // The future is polled only now, but the stop precedes the second `ensure`.
    timeout(TIMEOUT, stopped).await.expect("stopped in time");
    assert_eq!(fixture.exited().await.1, None);
    let (second, _) = fixture.started().await;
    assert!(!alive(first) && alive(second));
    // The future need not be polled at all.
    drop(fixture.supervisor.stop(&fleet("f")));
    assert_eq!(fixture.exited().await.1, None);
}

#[tokio::test]
async fn fleets_are_independent() {
    let mut fixture = fixture(|_| {});
    fixture.ensure("a/b-c", "echo one; exec sleep 1000");
    fixture.started().await;
    assert_eq!(fixture.line().await.2, "one");
    fixture.ensure("a-b/c", "exit 1");
    fixture.started().await;
    fixture.exited().await;
    fixture.stop("a-b/c").await;
    while let Ok(Some(event)) = timeout(Duration::from_millis(10), fixture.events.recv()).await {
        assert_eq!(*event.fleet(), fleet("a-b/c"), "{event:?}");
    }
    assert!(fixture.supervisor.dir(&fleet("a/b-c")).path().exists());
}

#[tokio::test]
async fn shutdown_stops_all_fleets_concurrently_and_accepts_no_more() {
    let mut fixture = fixture(|_| {});
    let shared_dir = fixture.dir.path().display().to_string();
    for id in ["a", "b", "c"] {
        // Returns only once all three have received SIGTERM.
        fixture.ensure(
            id,
            &format!(
                "trap 'touch {shared_dir}/{id}; \
                   until [ -e {shared_dir}/a -a -e {shared_dir}/b -a -e {shared_dir}/c ]; do sleep 0.01; done; exit 0' TERM
                 echo up; while :; do sleep 0.01; done"
            ),
        );
        fixture.started().await;
        assert_eq!(fixture.line().await.2, "up");
    }
    timeout(TIMEOUT * 2, fixture.supervisor.shutdown())
        .await
        .expect("shut down in time");
    for _ in 0..3 {
        assert_eq!(fixture.exited().await.0.code(), Some(0));
    }
    fixture.ensure("d", SLEEP);
    assert!(!fixture.supervisor.dir(&fleet("d")).path().exists());
    let Fixture {
        supervisor,
        mut events,
        ..
    } = fixture;
    drop(supervisor);
    assert!(events.recv().await.is_none());
}

#[tokio::test]
async fn unread_output_does_not_block_the_process() {
    let mut fixture = fixture(|_| {});
    let done = fixture.dir.path().join("done");
    // 4 MB: far more than a pipe holds.
    let script = format!(
        "i=0; while [ $i -lt 40000 ]; do echo '[info][main] {filler}' >&2; i=$((i+1)); done; touch {done}; {SLEEP}",
        filler = "x".repeat(100),
        done = done.display(),
    );
    fixture.ensure("f", &script);
    wait_until("done printing", || done.exists()).await;
    fixture.started().await;
    assert_eq!(fixture.line().await.2.len(), 100);
}

#[tokio::test]
async fn dropping_the_supervisor_ends_its_processes() {
    let mut fixture = fixture(|_| {});
    fixture.ensure("f", "echo up; exec sleep 1000");
    let (pid, _) = fixture.started().await;
    assert_eq!(fixture.line().await.2, "up");
    let Fixture {
        supervisor,
        mut events,
        dir: _dir,
    } = fixture;
    drop(supervisor);
    while timeout(TIMEOUT, events.recv())
        .await
        .expect("the end of events")
        .is_some()
    {}
    assert!(!alive(pid));
}

/// The test starts its own executable again, as the parent to kill.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn processes_die_with_a_killed_parent() {
    const PID_FILE_VAR: &str = "SESAME_TEST_PID_FILE";
    if let Some(file) = std::env::var_os(PID_FILE_VAR) {
        let mut fixture = fixture(|_| {});
        fixture.ensure("f", SLEEP);
        let (pid, _) = fixture.started().await;
        write_atomically(Path::new(&file), &pid.to_string());
        return std::future::pending().await;
    }

    let dir = tempfile::tempdir().expect("a folder for the test");
    let file = dir.path().join("pid");
    let mut parent = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "processes_die_with_a_killed_parent"])
        .env(PID_FILE_VAR, &file)
        // A killed process doesn't remove its temporary folder, so it is created in ours.
        .env("TMPDIR", dir.path())
        .stdout(Stdio::null())
        .spawn()
        .expect("this program again");
    wait_until("started", || file.exists()).await;
    let pid: u32 = fs::read_to_string(&file)
        .expect("a file")
        .parse()
        .expect("a process number");
    assert!(alive(pid));
    parent.kill().expect("a parent to kill");
    parent.wait().expect("the parent's end");
    wait_until("dead", || !alive(pid)).await;
}

#[cfg(target_os = "linux")]
fn write_atomically(path: &Path, text: &str) {
    let partial = path.with_extension("partial");
    fs::write(&partial, text).expect("a file");
    fs::rename(&partial, path).expect("a file");
}
